"""The paper's studies, figures and claims, computed again."""

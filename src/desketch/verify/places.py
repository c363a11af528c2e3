"""Where in the paper each statement of the report stands."""

from __future__ import annotations

__all__ = ["PLACES", "place"]

_MOMENTS = "Appendix, expectation and variance"
_COLUMNS = "Appendix, inner products"
_VECTORS = "Appendix, infinite norm"
_SINGLE = "Appendix, single-step scheme"
_LOCAL = "Appendix, K-step, convex"
_NON_CONVEX = "Appendix, K-step, non-convex"

# a statement's label -> where it stands; "(sharper)" and the like are dropped before looking it up
PLACES = {
    "Algorithm 1": "Algorithm 1",
    "thm:enc_dec": "Section 4, Theorem on sk/desk, Table of alpha",
    "remark on linear rates": "Section 5, after the strongly convex corollary",
    "fact:L_smooth_fact": "Appendix, optimization backgrounds",
    "fact:mu_upper_bound": "Appendix, optimization backgrounds",
    "lem:expectation": _MOMENTS,
    **dict.fromkeys(
        (
            "lem:var_gaussian",
            "lem:var_srht_ams",
            "lem:var_count_sketch",
            "lem:var_sparse_embedding",
            "lem:var_uniform_sample",
        ),
        _MOMENTS,
    ),
    **dict.fromkeys(("lem:gaussian_ip", "lem:srht_ip", "lem:ams_ip", "lem:cs_ip", "lem:sparse_ip"), _COLUMNS),
    **dict.fromkeys(("lem:gaussian_inf", "lem:srht_ams_inf", "lem:cs_inf", "lem:sparse_inf"), _VECTORS),
    "lem:uniform_inf": _VECTORS,
    "lem:cs_inf_2": f"{_VECTORS} (Chebyshev)",
    **dict.fromkeys(
        (
            "thm:single_step_strong_convex",
            "thm:single_step_convex",
            "thm:single_step_non_convex",
            "eq:strong_convex_bound",
            "eq:f_wt+1",
            "eq:convex_gap_1",
            "eq:convex_ip_1",
            "eq:convex_gap_2",
        ),
        _SINGLE,
    ),
    **dict.fromkeys(
        (
            "lem:update_rule",
            "lem:gtk1",
            "lem:gtk2",
            "lem:vtk",
            "eq:vtk_step1",
            "lem:rt",
            "eq:rt_step1",
            "thm:kstep_kmr19",
            "thm:kstep_kmr19_strcvx",
            "thm:communication_kstep_convex",
            "thm:communication_kstep_convex2",
        ),
        _LOCAL,
    ),
    **dict.fromkeys(
        (
            "lem:objective_move",
            "eq:ip_diff_sgd",
            "eq:gap_sgd",
            "eq:variance_bound",
            "theorem of sec:app_kstep_non",
        ),
        _NON_CONVEX,
    ),
}


def place(statement: str) -> str:
    """Where ``statement`` stands; what is said in brackets or after a comma does not matter."""
    return PLACES.get(statement.partition(" (")[0].partition(",")[0], "not in the paper")

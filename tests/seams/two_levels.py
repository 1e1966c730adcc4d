"""A quota of one account with two levels, as a plugin: what a team holds counts for its company too."""

from collections.abc import Mapping

from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.resources import ResourceList
from aischeduler.state.ledger import Account, Sums, within

TEAM = "team"
"""The label of a pod that names its team."""


class TwoLevels:
    """The quota: `company_of` has the teams, `limits` those of teams and companies by name."""

    name = "TwoLevels"

    def __init__(self, company_of: Mapping[str, str], limits: Mapping[str, ResourceList]) -> None:
        self._company_of, self._limits = company_of, limits

    def accounts_of(self, pod: Pod) -> tuple[Account, ...]:
        team = pod.labels.get(TEAM, "")
        return (("quota", team), ("quota", self._company_of[team])) if team in self._company_of else ()

    def refuses(self, pod: Pod, asked: PodSpec, ledger: Sums) -> str:
        for account in self.accounts_of(pod):
            resource = within(self._limits.get(account[1], {}), ledger.of(*account), asked)
            if resource:
                return f"{account[1]} would hold more {resource} than its quota"
        return ""

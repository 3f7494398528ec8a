"""Trying rules on existing messages: which messages they would select, and the effect of a change of them.

Hides how a batch is tried (`trial`), how two versions are compared message by message (`comparison`), the counts and
samples, bounded and mergeable (`findings`), and their report under the names of the rules (`report`). One rule is tried
on the last messages by `dry_run` (`preview`), and explained for one message by `explain_rule` (`explanation`);
`Takers` says which rules would take messages that are published now. Nothing is written, no rule is put in force.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.topic.trial.explanation import RuleExplanation, explain_rule
    from headgate.topic.trial.findings import Findings, Sample, SampleKind
    from headgate.topic.trial.preview import ChangeSample, DryRun, FieldChange, dry_run
    from headgate.topic.trial.report import OverlapFindings, TrialReport
    from headgate.topic.trial.request import TrialRequest
    from headgate.topic.trial.takers import Taken, Takers
    from headgate.topic.trial.trial import Trial
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)

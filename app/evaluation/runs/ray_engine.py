"""Runs the judging on a Ray cluster. Everything else happens in this process."""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil
from typing import Any, Final

import orjson
from pydantic import SecretStr

from app.evaluation.cases.case import Case
from app.evaluation.cases.case_result import JudgedOutput
from app.evaluation.judging.case_judge import CaseJudge, CaseVerdicts
from app.evaluation.judging.evaluator import Evaluator
from app.evaluation.judging.judge_worker import Worker
from app.evaluation.runs.run import EngineMissingError, Progress, RunRecorder, RunStoppedError
from app.evaluation.runs.run_folder import RunFolder
from app.evaluation.runs.run_summary import Summary
from app.settings import Settings
from groundlane_server.ray_worker import RayJudge
from judges.label_thresholds import Thresholds
from judges.types import Chunk

_WAVE: Final = 10_000
"""Maximum number of cases per dataset on the cluster. This process keeps them in memory, and each dataset starts new
judges."""
_BATCH: Final = 16
"""Number of cases in each batch that a judge on the cluster receives."""

Work = tuple[int, Case, str]
"""A case with its index in the input and its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The cluster to use. ``judges`` is the number of judges, each of which uses one core. None means one judge per
    core. ``address`` is the Ray address. None means ``RAY_ADDRESS`` if it is set, otherwise a new cluster on this
    machine."""

    judges: int | None = None
    address: str | None = None


async def run_cases_on_ray(
    evaluator: Evaluator,
    cases: Iterable[Case],
    folder: RunFolder,
    progress: Progress,
    *,
    settings: Settings,
    cluster: Cluster,
) -> Summary:
    """Like ``run_cases``, but judges on a Ray cluster, with the judge built from ``settings``. All nodes need the same
    version of this package. ``evaluator`` must be open. It provides keys and cached verdicts.

    Raises EngineMissingError and any error from ``run_cases``.
    """
    judging = _Judging(settings, evaluator.judge, cluster)
    try:
        await asyncio.to_thread(folder.open)
        recorder = RunRecorder(folder, progress)
        waiting = enumerate(cases)
        while wave := await asyncio.to_thread(lambda: list(islice(waiting, _WAVE))):
            await _one_wave(evaluator, judging, wave, recorder)
    finally:
        judging.close()
    return await recorder.close(evaluator)


async def _one_wave(
    evaluator: Evaluator, judging: "_Judging", wave: Sequence[tuple[int, Case]], recorder: RunRecorder
) -> None:
    wanted: dict[str, list[Work]] = {}
    for place, case in wave:
        key = evaluator.key(case)
        if (finished := await recorder.finished(case, key)) is not None:
            await recorder.take(place, finished, written=True)
        elif (known := await evaluator.known(case, key)) is not None:
            await recorder.take(place, known)
        else:
            wanted.setdefault(key, []).append((place, case, key))
    if not wanted:
        return
    arriving = judging.verdicts([same[0] for same in wanted.values()])
    while (found := await asyncio.to_thread(next, arriving, None)) is not None:
        key, verdicts = found
        for place, case, _ in wanted[key]:
            await recorder.take(place, await evaluator.settle(case, key, verdicts))


class _Judging:
    """The judges on the cluster."""

    def __init__(self, settings: Settings, judge: CaseJudge, cluster: Cluster) -> None:
        try:
            import ray
            import ray.data
            import ray.exceptions
        except ImportError:
            raise EngineMissingError("the engine 'ray' needs an extra: pip install 'groundlane[ray]'") from None
        library: Any = ray  # Ray is only partly typed
        self._data = library.data
        self._ours = None if library.is_initialized() else library
        logging.getLogger("ray.data").setLevel(logging.WARNING)  # Ray logs every step.
        if self._ours is not None:
            try:
                library.init(
                    address=cluster.address,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level=logging.WARNING,
                )
            except Exception as error:  # Ray raises exceptions without a common base class here.
                raise RunStoppedError(f"cannot reach or start the cluster: {_last_line(error)}.") from None
        context = library.data.DataContext.get_current()
        context.enable_progress_bars = False
        self._judges = cluster.judges or max(1, int(library.cluster_resources().get("CPU", 1)))
        self._errors: type[Exception] = library.exceptions.RayError
        self._arguments = judge_arguments(settings, judge)

    def close(self) -> None:
        """Disconnect from the cluster, unless the program was already connected before the run. A cluster started for
        the run is shut down."""
        if self._ours is not None:
            self._ours.shutdown()

    def verdicts(self, cases: Sequence[Work]) -> Iterator[tuple[str, CaseVerdicts]]:
        """Judge ``cases`` and yield (key, verdicts) pairs in order of completion."""
        rows = [{"key": key, "case": orjson.dumps(_packed(case))} for _, case, key in cases]
        blocks = ceil(len(rows) / _BATCH)
        judged = self._data.from_items(rows, override_num_blocks=blocks).map_batches(
            RayJudge,
            fn_constructor_args=(self._arguments,),
            batch_size=_BATCH,
            compute=self._data.ActorPoolStrategy(size=min(self._judges, blocks)),
            num_cpus=1,
        )
        try:
            for row in judged.iter_rows():
                found = orjson.loads(row["verdicts"])
                yield str(row["key"]), CaseVerdicts(JudgedOutput.of(found["judged"]), found["fault"])
        except self._errors as error:
            raise RunStoppedError(f"the cluster failed: {_last_line(error)}.") from None


class BatchJudge:
    """Judges batches in a Ray worker, for ``groundlane_server.ray_worker``. ``arguments`` comes from
    ``judge_arguments``. Raises the errors of ``Worker``."""

    def __init__(self, arguments: bytes) -> None:
        given = orjson.loads(arguments)
        settings = Settings(_env_file=None, **given["settings"])
        self._worker = Worker(settings, given["kind"], Thresholds(**given["thresholds"]), given["name"])

    def __call__(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        verdicts = self._worker.judge([_unpacked(orjson.loads(case)) for case in batch["case"]])
        return {
            "key": list(batch["key"]),
            "verdicts": [orjson.dumps({"judged": one.judged, "fault": one.fault}) for one in verdicts],
        }


def judge_arguments(settings: Settings, judge: CaseJudge) -> bytes:
    """Serialize the arguments for a judge on the cluster as JSON, without settings for the database and
    administration."""
    left_out = {"admin_token", "secret_key", "database_url"}
    values = settings.model_dump(mode="json", exclude=left_out)
    for name in values:
        if isinstance(secret := getattr(settings, name), SecretStr):
            values[name] = secret.get_secret_value()
    return orjson.dumps(
        {"settings": values, "kind": judge.kind.value, "thresholds": judge.thresholds, "name": judge.name}
    )


def _last_line(error: Exception) -> str:
    """Return the last line of a Ray error, which contains the cause. The other lines are the remote traceback."""
    return (str(error).strip() or type(error).__name__).splitlines()[-1][:500].removesuffix(".")


def _packed(case: Case) -> dict[str, Any]:
    """Return the fields of a case that a judge needs."""
    fields = ("id", "text", "source", "title", "relevance_score")
    return {
        "output": case.output,
        "documents": [{name: getattr(chunk, name) for name in fields} for chunk in case.documents],
    }


def _unpacked(data: Mapping[str, Any]) -> Case:
    return Case(case_id="", output=data["output"], documents=tuple(Chunk(**chunk) for chunk in data["documents"]))

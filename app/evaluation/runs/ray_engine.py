"""The same run over a Ray cluster: the cases are judged there, everything else stays here."""

import asyncio
import logging
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil
from typing import Any, Final

import orjson

from app.evaluation.cases.case import Case
from app.evaluation.cases.case_result import Judged
from app.evaluation.judging.case_judge import CaseJudge, Ruling
from app.evaluation.judging.evaluator import Evaluator
from app.evaluation.judging.judge_worker import Worker
from app.evaluation.runs.run import EngineMissingError, Progress, Recorder, RunStoppedError
from app.evaluation.runs.run_folder import RunFolder
from app.evaluation.runs.run_summary import Summary
from app.settings import Settings
from groundlane_server.ray_worker import RayJudge
from judges.thresholds import Thresholds
from judges.types import Chunk

_WAVE: Final = 10_000
"""Cases handed to the cluster as one data set: what is held in memory here, and what the judges are started for."""
_BATCH: Final = 16
"""Cases that a judge of the cluster takes at once."""

Work = tuple[int, Case, str]
"""A case with its number in the input and its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """``judges`` of them on the cluster, each on one core; None: one for each core that there is. ``address``: as Ray
    takes it; None: that of the environment (``RAY_ADDRESS``), else a cluster of this machine alone."""

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
    """``running.run_cases`` with the judging done on a Ray cluster, by the judge of ``settings``; the nodes need this
    package, of the same version. ``evaluator`` says what is known already, and must be open.

    Raises EngineMissingError, and what ``run_cases`` raises.
    """
    judging = _Judging(settings, evaluator.judge, cluster)
    try:
        await asyncio.to_thread(folder.open)
        recorder = Recorder(folder, progress)
        waiting = enumerate(cases)
        while wave := await asyncio.to_thread(lambda: list(islice(waiting, _WAVE))):
            await _one_wave(evaluator, judging, wave, recorder)
    finally:
        judging.close()
    return await recorder.close(evaluator)


async def _one_wave(
    evaluator: Evaluator, judging: "_Judging", wave: Sequence[tuple[int, Case]], recorder: Recorder
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
    rulings = judging.rulings([same[0] for same in wanted.values()])
    while (found := await asyncio.to_thread(next, rulings, None)) is not None:
        key, ruling = found
        for place, case, _ in wanted[key]:
            await recorder.take(place, await evaluator.settle(case, key, ruling))


class _Judging:
    """The cluster's side, as seen from here."""

    def __init__(self, settings: Settings, judge: CaseJudge, cluster: Cluster) -> None:
        try:
            import ray
            import ray.data
            import ray.exceptions
        except ImportError:
            raise EngineMissingError("the engine 'ray' needs the extra: pip install 'groundlane[ray]'") from None
        library: Any = ray  # half of what it has is without types
        self._data = library.data
        self._ours = None if library.is_initialized() else library
        logging.getLogger("ray.data").setLevel(logging.WARNING)  # it tells of every step
        if self._ours is not None:
            try:
                library.init(
                    address=cluster.address,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level=logging.WARNING,
                )
            except Exception as error:  # some of what Ray raises here has no base but this
                raise RunStoppedError(f"the cluster cannot be reached or started: {_last_line(error)}.") from None
        context = library.data.DataContext.get_current()
        context.enable_progress_bars = False
        self._judges = cluster.judges or max(1, int(library.cluster_resources().get("CPU", 1)))
        self._errors: type[Exception] = library.exceptions.RayError
        self._arguments = (_needed(settings), judge.kind.value, judge.thresholds, judge.name)

    def close(self) -> None:
        """Leave the cluster, if it was not joined before; one that was started for this ends."""
        if self._ours is not None:
            self._ours.shutdown()

    def rulings(self, cases: Sequence[Work]) -> Iterator[tuple[str, Ruling]]:
        """The rulings on ``cases`` by their keys, as they come."""
        rows = [{"key": key, "case": orjson.dumps(_packed(case))} for _, case, key in cases]
        blocks = ceil(len(rows) / _BATCH)
        judged = self._data.from_items(rows, override_num_blocks=blocks).map_batches(
            RayJudge,
            fn_constructor_args=(pickle.dumps(self._arguments),),
            batch_size=_BATCH,
            compute=self._data.ActorPoolStrategy(size=min(self._judges, blocks)),
            num_cpus=1,
        )
        try:
            for row in judged.iter_rows():
                found = orjson.loads(row["ruling"])
                yield str(row["key"]), Ruling(Judged.of(found["judged"]), found["fault"])
        except self._errors as error:
            raise RunStoppedError(f"the cluster failed: {_last_line(error)}.") from None


class BatchJudge:
    """Judges batches in a Ray worker, for ``groundlane_server.ray_worker``. Raises what ``Worker`` raises."""

    def __init__(self, settings: Settings, kind: str, thresholds: Thresholds, name: str) -> None:
        self._worker = Worker(settings, kind, thresholds, name)

    def __call__(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        rulings = self._worker.rule([_unpacked(orjson.loads(case)) for case in batch["case"]])
        return {
            "key": list(batch["key"]),
            "ruling": [orjson.dumps({"judged": one.judged, "fault": one.fault}) for one in rulings],
        }


def _needed(settings: Settings) -> Settings:
    """What the judges on the cluster are told of the settings: nothing of database and administration."""
    defaults = Settings.model_fields
    left_out = ("admin_token", "secret_key", "database_url")
    return settings.model_copy(update={name: defaults[name].default for name in left_out})


def _last_line(error: Exception) -> str:
    """Ray's errors hold the trace of the other side; what went wrong stands in its last line."""
    return (str(error).strip() or type(error).__name__).splitlines()[-1][:500].removesuffix(".")


def _packed(case: Case) -> dict[str, Any]:
    """What a judge needs of a case."""
    fields = ("id", "text", "source", "title", "relevance_score")
    return {
        "output": case.output,
        "documents": [{name: getattr(chunk, name) for name in fields} for chunk in case.documents],
    }


def _unpacked(data: Mapping[str, Any]) -> Case:
    return Case(case_id="", output=data["output"], documents=tuple(Chunk(**chunk) for chunk in data["documents"]))

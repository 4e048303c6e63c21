"""The model card, written from a report."""

from collections.abc import Mapping
from typing import Any, Final

from judges.training.base import NAME
from judges.training.data import WRITTEN
from judges.training.metrics import Figures, macro, table

_LICENCES: Final[Mapping[str, str]] = {
    "AggreFact-xsumfaith": "none stated (Liyan06/AggreFact)",
    "BEGIN": "CC BY 4.0 (google/BEGIN-dataset)",
    "BUMP": "MIT (dataminr-ai/BUMP)",
    "BreakingNLI": "CC BY-SA 4.0 (BIU-NLP/Breaking_NLI)",
    "CLIFF-cnndm": "none stated (Liyan06/AggreFact)",
    "CLIFF-xsum": "none stated (Liyan06/AggreFact)",
    "CLIMATE-FEVER": "none stated (tdiggelm/climate-fever-dataset)",
    "COVID-Fact": "none stated (asaakyan/covidfact)",
    "ConjNLI": "MIT (swarnaHub/ConjNLI)",
    "ContractNLI-window": "Apache-2.0 (stanfordnlp/contract-nli-bert)",
    "FEVER-Symmetric": "CC BY-SA 3.0 (TalSchuster/FeverSymmetric)",
    "FEVER-binary": "BSD-3, FEVER CC BY-SA (salesforce/DocNLI)",
    "FEVER-gold": "none stated, FEVER CC BY-SA 3.0 (asaakyan/covidfact)",
    "FIB-xsum": "CC BY 4.0 (r-three/fib)",
    "FactCC-annotated": "Apache-2.0 (tingofurro/summac)",
    "FactCC-inconsistent": "Apache-2.0 (salesforce/factualNLG)",
    "FactCG-cg2c_doc": "MIT (derenlei/FactCG)",
    "FactCG-cg2c_mus": "MIT (derenlei/FactCG)",
    "FaithDial-audit": "MIT (McGill-NLP/FaithDial)",
    "FoolMeTwice": "Apache-2.0 (google-research/fool-me-twice)",
    "Goyal21": "none stated (Liyan06/AggreFact)",
    "HELP": "CC BY-SA 4.0 (verypluming/HELP)",
    "HealthVer": "none stated (sarrouti/HealthVer)",
    "InfoTabs": "Apache-2.0 (infotabs/infotabs)",
    "MCTest-NLI": "BSD-3 (salesforce/DocNLI)",
    "MED": "CC BY-SA 4.0 (verypluming/MED)",
    "MNLI-binary": "BSD-3 (salesforce/DocNLI)",
    "MoNLI": "none stated (atticusg/MoNLI)",
    "NLI4CT": "none stated (ai-systems/nli4ct)",
    "Polytope": "Apache-2.0 (tingofurro/summac)",
    "Q2-WoW": "Apache-2.0, data MIT (orhonovich/q-squared)",
    "SNLI": "CC BY-SA 4.0 (Stanford NLP)",
    "SciFact-RTE": "none stated, SciFact CC BY 4.0 (asaakyan/covidfact)",
    "SummEval": "Apache-2.0 (tingofurro/summac)",
    "WiCE-subclaim-partial": "ODC-BY, text CC BY-SA (ryokamoi/wice)",
    "XSumFaith": "CC BY 4.0 (google-research-datasets/xsum_hallucination_annotations)",
    WRITTEN: "Apache-2.0 (this project); passages as above",
}
_HEAD: Final = """\
# The embedded judge

A cross-encoder for grounding: it reads a claim against retrieved text and says whether the text entails it, leaves it
open or contradicts it. Evidence tokens do not see the claim, so what was read of a document is kept and used for every
sentence of a reply, and for other requests. Its probabilities and exact comparisons of wording, numbers, dates, names
and negation go into a small combiner (`judges/signals`).

| | |
|---|---|
| base | {base} |
| trained by | `python -m judges.training`: {made}, then `ship`; {claims} claims a step at most, seed {seed} |
| size on disk | {megabytes:.1f} MB: INT8 weights, one set for both graphs |
| longest input | claims of {claim_tokens} tokens; evidence in windows of {window_tokens} tokens, several at once |
| language | English |

## Figures

On the development set, whose premises are in no training data, at the one threshold that the policies' default is. A
claim counts as supported at a score of 0.7; the false-block rate is the share of supported claims that are called
contradicted. Written by the script that exports the model.

### The judge as it ships

{judge}
Before quantisation the macro balanced accuracy is {fp32:.3f}, the ROC-AUC {fp32_auc:.3f}.

### The encoder alone, at 0.5

{encoder}
### Claims and replies written to measure with

By the judge as it ships. "twins" are true claims, each beside a false one in much the same words, about passages that
were kept from training, though part of them place the threshold; "replies" are sentences of an assistant's answers over
one to four documents, with the mistakes that language models make (`judges/training/replies.jsonl`); "paraphrases" are
true sentences about one passage in the words of an assistant, and such with one thing wrong
(`judges/training/paraphrases.jsonl`): both of another hand, and never trained on.

{written}
### Wording alone: boosted trees without a model and without signals

On 7,000 rows of the training pool; means over twelve draws of them.

{wording}
## Training data

{rows:,} labelled claims: of public data sets, and such as were written for it (`judges/training/written/`) about their
passages and others: true ones in quite other words, each beside a false one that differs in one thing. To them come
claims made by rule from all these passages (sentences repeated, merged, shortened; numbers, dates, names and polarity
swapped; sentences taken out of the evidence). Licences are what each repository says, and no legal advice;
`--stated-only` trains without those that state none.

| data set | rows | licence |
|---|---|---|
{sources}

## Limits

- English alone: claims in other languages are left unverifiable unless they stand in the evidence.
- It was trained on encyclopaedias, news, dialogue, health and contracts; measure it on your own replies before you
  block on its word, and set thresholds by calibration.
- It is weaker where a false claim has nearly all the words of the passage (roles exchanged, one name for another, a
  condition dropped, something planned told as done): it often calls that supported, as it does with more than half of
  the replies' sentences above that contradict their documents. A true statement in quite other words it may leave
  unverifiable. Put a larger judge or an LLM behind it where that is dear.
- Arithmetic over several figures, long chains of inference and world knowledge are beyond it.
- A claim that is true and not in the documents is not supported: that is what it is for.
"""


def write(report: Mapping[str, Any]) -> str:
    """The card in Markdown."""
    judged, exact, encoder, wording, written = (
        {source: Figures(**one) for source, one in report[name].items()}
        for name in ("judge", "judge_fp32", "encoder_alone", "wording_alone", "written")
    )
    rows = report["training_rows"]
    return _HEAD.format(
        base=NAME,
        made=_made(report),
        claims=report["plan"]["claims"],
        seed=report["plan"]["seed"],
        megabytes=report["bytes"] / 1e6,
        claim_tokens=report["claim_tokens"],
        window_tokens=report["window_tokens"],
        judge=table(judged),
        fp32=macro(exact, "balanced_accuracy"),
        fp32_auc=macro(exact, "roc_auc"),
        encoder=table(encoder),
        wording=table(wording),
        written=table(written),
        rows=sum(rows.values()),
        sources="\n".join(f"| {source} | {count:,} | {_LICENCES.get(source, '')} |" for source, count in rows.items()),
    )


def _made(report: Mapping[str, Any]) -> str:
    return _told({**report["plan"], "steps": report["steps"]})


def _told(plan: Mapping[str, Any]) -> str:
    """How the weights of a run came about; those of a mean may be means themselves."""
    if runs := plan.get("mean_of"):
        return f"the `mean` of {' and '.join(f'({_told(run)})' if 'mean_of' in run else _told(run) for run in runs)}"
    return f"`train` for {plan['steps']:,} steps{' from an exported judge' if plan.get('begun') else ''}"

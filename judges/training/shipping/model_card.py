"""Generates the model card from a report."""

from collections.abc import Mapping
from typing import Any, Final

from judges.training.data.datasets import WRITTEN
from judges.training.evaluation.metrics import Figures, macro, table

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
_ALONE: Final = """\
# The embedded judge

A cross-encoder for grounding: it reads a claim together with retrieved text, and estimates whether the text entails the
claim, contradicts it, or does neither. Evidence tokens don't attend to the claim, so the encoded document is cached and
reused for every sentence of a reply, and for other requests. A small combiner (`judges/features`) merges the model's
probabilities with exact comparisons of wording, numbers, dates, names and negation.
"""
_SECOND: Final = """\
# The larger encoder of the embedded judge

This encoder is trained and used in the same way as the [small one](../CARD.md), but is larger. It reads a claim against
all of its evidence windows together. The combiner (`judges/features`) weighs its probabilities with those of the small
encoder and with the exact comparisons.
"""
_HEAD: Final = """\
{intro}
| | |
|---|---|
| base | {base} |
| trained by | `python -m judges.training`: {made}, then `ship`; {claims} claims per step at most, seed {seed} |
| size on disk | {megabytes:.1f} MB: INT8 weights, one set for both graphs |
| longest input | claims of {claim_tokens} tokens; evidence in windows of {window_tokens} tokens, several at once |
| language | English |

## Figures

{judged}

The export script generates this section. The figures are for the development set, whose premises aren't in the training
data. A claim counts as supported if its score is at least 0.7, the policies' default threshold. The false-block rate is
the share of supported claims that are called contradicted.

### The judge as shipped

{judge}
{quantization}

### The encoder alone, at 0.5

{encoder}
### Claims and replies written for measurement

These are the figures of the judge as shipped. "Twins" are true claims, each paired with a false one in nearly the same
words. Their passages were excluded from the training of the encoders, but some of the twins were used to fit the
combiner and to set its threshold. "Replies" are sentences from an assistant's answers over one to four documents, with
typical mistakes of language models (`judges/training/data/replies.jsonl`). "Paraphrases" are true sentences about one
passage in an assistant's words, and sentences with one error (`judges/training/data/paraphrases.jsonl`). "Answers" are
sentences from fluent answers over one to four documents (`judges/training/data/answers.jsonl`). Replies, paraphrases
and answers were not written by the author of the training data, and were never used in training. The answers were
written last. No encoder was chosen by them, but the weight of handwritten claims in the combiner for two encoders was
raised after they had been measured.

{written}
### Wording alone: boosted trees without the encoder and without exact comparisons

The trees are fitted on 7,000 rows of the training data. The figures are means over twelve samples of those rows.

{wording}
## Training data

The training data are {rows:,} labelled claims: claims from public data sets, and claims written for training
(`judges/training/data/written/`) about the same and other passages. Each true claim written for training paraphrases
its passage, and is paired with a false claim that differs in one thing. In addition, rules generate claims from all
these passages: they repeat, merge and shorten sentences, change numbers, dates, names and polarity, and remove
sentences from the evidence. Licences are as stated by each repository; this is not legal advice. The option
`--stated-only` excludes the repositories that state no licence.

| data set | rows | licence |
|---|---|---|
{sources}

## Limits

- English only. Claims in other languages are unverifiable unless the evidence contains them literally.
- The training data are encyclopaedias, news, dialogue, health and contracts. Measure the judge on your own replies
  before you let it block anything, and calibrate the thresholds.
- The judge is weaker on false claims that repeat nearly all the words of the passage, but with swapped roles, one name
  instead of another, a dropped condition, or a plan presented as done. It often calls such a claim supported, including
  more than half of the contradicting sentences in the replies above. It may call a correct free paraphrase
  unverifiable. If these errors are costly for you, add a larger judge or an LLM.
- It can't do arithmetic over several figures, follow long chains of inference, or use world knowledge.
- A claim that is true but not in the documents is not supported. This is intended.
"""


def write(report: Mapping[str, Any]) -> str:
    """Return the card in Markdown."""
    judged, exact, encoder, wording, written = (
        {source: Figures(**one) for source, one in report[name].items()}
        for name in ("judge", "judge_fp32", "encoder_alone", "wording_alone", "written")
    )
    rows = report["training_rows"]
    second = "first" in report
    return _HEAD.format(
        intro=_SECOND if second else _ALONE,
        judged=f"These are the figures of the judge with {'both encoders' if second else 'this encoder only'}.",
        quantization=_quantization(report, exact),
        base=report["base"],
        made=_made(report),
        claims=report["plan"]["claims"] * report["plan"].get("parts", 1),
        seed=report["plan"]["seed"],
        megabytes=report["bytes"] / 1e6,
        claim_tokens=report["claim_tokens"],
        window_tokens=report["window_tokens"],
        judge=table(judged),
        encoder=table(encoder),
        wording=table(wording),
        written=table(written),
        rows=sum(rows.values()),
        sources="\n".join(f"| {source} | {count:,} | {_LICENCES.get(source, '')} |" for source, count in rows.items()),
    )


def _quantization(report: Mapping[str, Any], exact: Mapping[str, Figures]) -> str:
    """Compare the shipped weights with the weights before quantization."""
    before = f"{macro(exact, 'balanced_accuracy'):.3f} and the ROC-AUC {macro(exact, 'roc_auc'):.3f}"
    if "first" not in report:
        return f"Before quantization, the macro balanced accuracy is {before}."
    after = {source: Figures(**one) for source, one in report["judge_int8"].items()}
    return (
        f"Before quantization of this encoder, the macro balanced accuracy on {report['compared_rows']} of these rows "
        f"is {before}. After quantization, they are {macro(after, 'balanced_accuracy'):.3f} and "
        f"{macro(after, 'roc_auc'):.3f}."
    )


def _made(report: Mapping[str, Any]) -> str:
    return _told({**report["plan"], "steps": report["steps"]})


def _told(plan: Mapping[str, Any]) -> str:
    """Describe how the weights of a run were obtained. The runs in a mean may be means themselves."""
    if runs := plan.get("mean_of"):
        return f"the `mean` of {' and '.join(f'({_told(run)})' if 'mean_of' in run else _told(run) for run in runs)}"
    return f"`train` for {plan['steps']:,} steps{' from an exported judge' if plan.get('begun') else ''}"

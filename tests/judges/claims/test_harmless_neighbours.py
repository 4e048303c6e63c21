"""Each kind of text on the closed list, beside similar text that states something and is judged."""

import pytest

from judges.claims.harmless import HarmlessText
from judges.claims.known_text import KnownText

DOCUMENTS = [
    "Adults take one tablet of 500 mg every six hours.",
    "Stop taking the medicine and see a doctor if you get a rash.",
    "Do not use ice. Never drink alcohol. Missing parcels must be reported within 10 days or 30 days.",
    "Water damage is covered by the policy. Type 1 diabetes is described in Article 15.",
    "The manager approves leave.",
    "Der Schaden ist abgedeckt. La perte est couverte.",
]
NAMES = ["leaflet", "faq.pdf"]
QUESTION = "How many tablets may I take? I cannot sleep."
HARMLESS = HarmlessText(KnownText(question=QUESTION, documents=DOCUMENTS, names=NAMES))
REFUSING = HarmlessText(
    KnownText(
        question=f"{QUESTION} What do leaflet and policy say about water damage, how to take medicine, alcohol, ice, "
        "leave, a rash, and a doctor? Is it covered?",
        documents=DOCUMENTS,
        names=NAMES,
    )
)
"""A refusal only names what the user asked about."""


def states_nothing(text: str, kind: str = "") -> bool:
    """Whether the extractor leaves out all of ``text``."""
    harmless = REFUSING if kind == "a refusal" else HARMLESS
    bare = text[harmless.refusal(text) :].strip()
    return not bare or harmless.is_courtesy(bare) or harmless.is_question(bare) or harmless.is_label(bare)


KINDS = {
    "an offer of help": (
        ["Let me know if you need anything else.", "Let me know if I can assist you further.",
         "If you have any questions, please get in touch.",
         "You're welcome to reach out if you run into any problems.",
         "If the problem persists, please let me know.",
         "Let me know if there's anything else I can do for you.", "I hope this gives you a good overview.",
         "N'hésitez pas si vous avez d'autres questions !",
         "Kann ich Ihnen sonst noch weiterhelfen?", "Fammi sapere se hai altre domande!", "Laat het me weten!"],
        ["Let me know if 8 tablets are fine.", "Let me know the tablet is covered.", "Let me know and use ice.",
         "If the problem persists, take alcohol.", "You're welcome to use ice.", "Contact us within 30 days.",
         "Feel free to ask, use ice.", "Thank you for your question, stop taking the medicine.",
         "I hope this helps and do not see a doctor.", "Ask your doctor before you stop taking the medicine.",
         "Let's take one tablet every six hours."],
    ),
    "sympathy": (
        ["I'm sorry to hear that!", "I'm sorry you're not feeling well.", "I understand how frustrating that is.",
         "We apologise for the inconvenience and thank you for your patience."],
        ["I'm sorry to hear that leave is approved.", "I'm sorry you're having 8 tablets.",
         "I'm sorry to hear that water damage is not covered.", "I understand how dangerous the medicine is."],
    ),
    "a wish": (
        ["Get well soon!", "Enjoy your stay!", "Have a great trip!", "Safe travels!", "Welcome to the team!",
         "Happy coding!", "We look forward to working with you!", "What a lovely idea!", "I'm glad I could help."],
        ["Enjoy your tablets.", "Have a tablet.", "I hope you enjoy the alcohol!",
         "Get well soon by drinking alcohol.", "Happy drinking!",
         "Welcome to the team of 500.", "We look forward to paying you 500."],
    ),
    "a pointer to more": (
        ["For more information, see the policy.", "Please let me know."],
        ["Please ask your doctor or pharmacist for advice.", "For a recommendation, please talk to your doctor.",
         "You may want to check with HR.", "I'd recommend checking with the rail company directly.",
         "Veuillez consulter votre médecin.", "Fragen Sie Ihren Arzt.", "Consulte con su médico.",
         "This is not legal advice.", "This is general information and not legal advice.",
         "Always follow your doctor's advice."],
    ),
    "the head and end of a letter": (
        ["Dear Sir or Madam,", "Dear [Manager],", "Kind regards,\nCustomer Support", "Best regards,\n[Name]",
         "Yours faithfully,\n[Your name]", "[Your name]", "Subject: Missing parcels", "Viele Grüße, Ihr Support-Team"],
        ["[take 8 tablets]", "[Name: take 8]", "Email", "Dear [take 8 tablets],", "Kind regards, six tablets",
         "Subject: take 8 tablets", "Subject: Water damage is not covered", "Subject: Use ice"],
    ),
    "an announcement": (
        ["Here's what to do:", "Here's how to sleep:", "Here is an overview of the policy:",
         "The key terms are as follows:", "Please keep these points in mind:", "Gehen Sie wie folgt vor:",
         "Ecco un riepilogo:", "Aqui está um resumo:", "Dit zijn de belangrijkste punten:"],
        ["Here's how to take 8 tablets:", "Here is one tablet every six hours.", "Here is the ice, use ice.",
         "The key terms are 500 mg.", "Please keep six tablets in mind.",
         "This is covered.", "These are reported.", "The following is alcohol.", "Below is covered by the policy.",
         "Here are covered.", "This is a policy you use.", "This is a rash.", "Here is the policy covered.",
         "Here are the tablets you take with alcohol:",
         "Here is the ice the doctor approves:", "Thank you =>!", "Here is a summary = ice:",
         "Here's how the manager approves leave:"],
    ),
    "a question to the user": (
        ["Would you like more information about the tablets?", "Want me to show an example?",
         "Did that solve the problem?", "Do any of these apply to you?", "Vuoi che ti aiuti?"],
        ["Have you already asked your manager?", "How many tablets do you take?",
         "Want me to take 8 tablets?", "Have you asked whether 9000 works?", "How many tablets do you take, 8?",
         "Would you like to know when water damage is covered?", "Shall I explain how adults drink alcohol?",
         "Do you want me to explain why the policy covers ice?", "How about 30 tablets?",
         "Would you like to know when adults take it?",
         "What if you must not see a doctor?",
         "Would you like the leaflet, or 500 tablets?"],
    ),
    "a refusal": (
        ["I can't answer that from the handbook; please ask the HR desk.".partition(" please")[0],
         "The handbook gives no information on leave.", "Water damage isn't mentioned in the policy.",
         "I couldn't find anything about alcohol in the leaflet.", "The documents don't give a rash.",
         "Sorry, I don't know.", "I don't know how many tablets.",
         "I don't know whether the policy covers water damage.", "I don't have information about leave.",
         "The leaflet doesn't say how to take the medicine.",
         "I cannot say whether the policy covers a rash.", "I cannot say which policy that is.",
         "I don't know where the doctor is.",
         "No information about the policy is available.", "Ich weiß nicht, ob das Ice ist.", "Je ne sais pas.",
         "No puedo responder."],
        ["Sorry water damage is covered by the policy.", "Sorry take tablets.", "Sorry, and the policy covers a rash.",
         "I'm sorry stop taking the medicine.", "Sorry about the rash you get from ice.",
         "Es tut mir leid water damage is covered.", "Désolé the manager approves leave.", "Lo siento drink alcohol.",
         "I don't know, or the manager approves leave.",
         "I don't know and use ice.", "I don't know managers approve leave.",
         "Je ne sais pas la perte.", "I don't know the manager approves leave to drink alcohol is fine.",
         "I don't know why the policy covers ice.", "I don't know when the policy covers ice.",
         "I cannot say which policy covers a rash.",
         "The leaflet doesn't say when ice may apply.", "The leaflet doesn't say where adults drink alcohol.",
         "I can't use ice.", "I'm unable to get a rash.",
         "I don't have to see a doctor.", "The documents say nothing is covered by the policy.",
         "The manager approves leave is not mentioned in the leaflet.", "Use ice is not mentioned in the leaflet.",
         "Stop taking the medicine isn't mentioned in the leaflet.",
         "The documents do not say that the manager approves leave.", "The leaflet doesn't mention take the tablet.",
         "The leaflet does not say never drink alcohol.", "I cannot say no to ice.",
         "Water damage is not covered by the policy.", "Water damage is not included in the policy.",
         "The policy does not cover water damage.", "The policy has no 500 mg.", "The handbook gives no leave.",
         "The documents don't mention medicine other than ice.", "The documents don't mention more medicine than ice.",
         "The documents do not mention ice => tablet.", "The leaflet doesn't mention ice = medicine.",
         "The leaflet doesn't mention extra tablets.", "Los documentos no mencionan más que ice."],
    ),
    "a label": (
        ["What it means", "How it works", "Type 1", "Article 15", "Use cases", "Water damage at a glance",
         "The tablets are:", "Water damage and missing parcels",
         "Missing parcels policy", "To see a doctor", "When to see a doctor", "Missing parcels:",
         "Medicine for adults", "The policy covers:", "The manager approves the following:", "The medicine includes:",
         "More information", "Terms & conditions", "Summary (policy)", "Policy – overview", "Diabetes (Article 15)",
         "Adults, ice and alcohol", "Additional information about the policy", "Policy: overview",
         "How to take the tablets", "Why see a doctor", "Weitere Informationen",
         "You can take the following:", "Before taking the tablets"],
        ["Use ice", "Stop the medicine", "Drink alcohol", "And use ice", "Leave: use ice", "Six tablets", "Type 2",
         "Article 16", "The policy does not cover water damage", "Do not take tablets", "What it means is 9000",
         "Water damage covered", "Perte couverte", "Schaden abgedeckt", "Der Schaden deckt die Medicine",
         "La perte couvre le policy", "Medicine: ice", "Manager: adults", "Ice (medicine)", "Adults, the managers",
         "Alcohol – medicine",
         "Managers approve the leave", "The manager approves leave", "Adults take tablets",
         "Adults drink alcohol daily", "You use ice", "It damages water", "Tablets: covered", "Policy takes days",
         "Adults take ice with:", "The policy covers ice for:", "It covers ice as follows:", "Adults need ice with:",
         "You get a rash from ice by:", "The doctor uses ice to:", "The manager approves ice on:", "You use this ice:",
         "Why alcohol is the medicine", "How leave is approved", "What ice is: medicine", "What to use: ice",
         "How often to take tablets: every hour", "Medicine: ice", "Ice trinken",
         "Toman alcohol",
         "Alcohol = medicine", "Alcohol >= ice", "Alcohol -> medicine", "Alcohol + ice", "Alcohol ≠ ice",
         "Alcohol ➜ ice", "Alcohol ~ ice", "Alcohol & & ice", "Extra tablets", "More tablets", "Several tablets",
         "Another tablet",
         "Additional ice", "Double ice", "Mehr alcohol", "Plusieurs tablets", "Más alcohol", "(8) tablets",
         "8. Tablets", "Why the manager approves leave", "Leave: managers approve the policy",
         "Water damage reported"],
    ),
    "an announcement of what follows": (
        ["Here are the tablets:", "Here's the policy for adults:", "Here is a summary of the policy.",
         "Below is the leave policy:"],
        ["Here are the tablets.", "Here is the medicine for adults."],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, (texts, _) in KINDS.items() for text in texts])
def test_listed_text_states_nothing(kind: str, text: str) -> None:
    assert states_nothing(text, kind), kind


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, (_, texts) in KINDS.items() for text in texts])
def test_similar_text_is_judged(kind: str, text: str) -> None:
    assert not states_nothing(text, kind), kind


@pytest.mark.parametrize("text", ["[^1]: leaflet", "[^leave]: faq.pdf", "¹ leaflet", ": faq.pdf"])
def test_footnote_naming_a_document_states_nothing(text: str) -> None:
    assert HARMLESS.is_footnote(text)


@pytest.mark.parametrize("text", ["[^1]: take 8", "[^take-8]: leaflet", "¹ use ice", "[^1]: leaflet says 8"])
def test_footnote_with_a_statement_is_judged(text: str) -> None:
    assert not HARMLESS.is_footnote(text)

"""An outcome that the user has defined, as the model is told of it. Grading it is not ours."""

from __future__ import annotations

from mainspring.core.events import FileRubric, TextRubric, UserDefineOutcome


def assignment(defined: UserDefineOutcome) -> str:
    match defined.rubric:
        case TextRubric(content=rubric):
            graded = f"<rubric>\n{rubric}\n</rubric>"
        case FileRubric(file_id=file_id):
            graded = f"The rubric is the file {file_id}."
    return (
        "Work until this outcome is reached:\n\n"
        f"<outcome>\n{defined.description}\n</outcome>\n\n"
        "What you have produced will be graded, by somebody who sees only that, with this rubric.\n"
        f"{graded}"
    )

import io
import os
import stat
import zipfile
from contextlib import suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import pytest
from anthropic.lib.tools._skills import _extract_skill_archive as extract
from hypothesis import example, given
from hypothesis import strategies as st
from tests.row_checks import for_each

from mainspring.core.errors import InvalidInput, TooLarge
from mainspring.runtime.packages.package_contents import PackageLimits, UploadedFile, check_path
from mainspring.service.resources.skill_resources import SkillBundle, pack_skill, read_skill_bundle

LIMITS = PackageLimits(max_bytes=1_000_000, max_files=50)
MANIFEST = b"---\nname: pdf\ndescription: Reads PDF files.\n---\nRead."


def bundle_from_zip(*entries: tuple[zipfile.ZipInfo | str, bytes]) -> SkillBundle:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pdf/SKILL.md", MANIFEST)
        for name, content in entries:
            archive.writestr(name, content)
    return read_skill_bundle([UploadedFile(path="a.zip", content=buffer.getvalue())], LIMITS)


def bundle_from_files(*paths: str, manifest: bytes = MANIFEST) -> SkillBundle:
    files = [UploadedFile(path=path, content=path.encode()) for path in paths]
    return read_skill_bundle([UploadedFile(path="pdf/SKILL.md", content=manifest), *files], LIMITS)


def zip_entry(name: str, kind: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.create_system = 3
    entry.external_attr = (kind | 0o777) << 16
    return entry


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO])
def test_links_and_devices_in_an_archive_are_refused(kind: int):
    with pytest.raises(InvalidInput, match="neither a file nor a folder"):
        bundle_from_zip((zip_entry("pdf/link", kind), b"/etc/passwd"))


@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "pdf/../../up", "pdf\\..\\up", "pdf//x"])
def test_an_archive_path_that_leads_out_is_refused(name: str):
    with pytest.raises(InvalidInput):
        bundle_from_zip((name, b"x"))


def test_an_archive_that_unpacks_to_too_much_is_refused():
    with pytest.raises(TooLarge, match="unpacked"):
        bundle_from_zip(*((f"pdf/{n}", bytes(400_000)) for n in range(40)))


def test_an_archive_with_false_sizes_is_refused():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pdf/SKILL.md", MANIFEST)
        archive.writestr("pdf/bomb", bytes(3_000_000))
    told = buffer.getvalue().replace((3_000_000).to_bytes(4, "little"), (9).to_bytes(4, "little"))
    with pytest.raises((InvalidInput, TooLarge)):
        read_skill_bundle([UploadedFile(path="a.zip", content=told)], LIMITS)


def test_too_many_files_are_refused_in_either_format():
    with pytest.raises(TooLarge, match="50 files"):
        bundle_from_zip(*((f"pdf/{n}", b"") for n in range(60)))
    with pytest.raises(TooLarge, match="50 files"):
        bundle_from_zip(*((f"pdf/{n}", b"") for n in range(600)))
    with pytest.raises(TooLarge, match="50 files"):
        bundle_from_files(*(f"pdf/{n}" for n in range(60)))


def test_an_encrypted_or_unusually_compressed_archive_is_refused():
    odd = zip_entry("pdf/x", stat.S_IFREG)
    odd.compress_type = zipfile.ZIP_LZMA
    with pytest.raises(InvalidInput, match="compressed with an unsupported method"):
        bundle_from_zip((odd, b"x"))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("pdf/SKILL.md", MANIFEST)
    raw = bytearray(buffer.getvalue())
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(InvalidInput, match="encrypted"):
        read_skill_bundle([UploadedFile(path="a.zip", content=bytes(raw))], LIMITS)


def test_only_the_executable_bit_of_a_mode_is_kept():
    bundle = bundle_from_zip(
        (zip_entry("pdf/run", stat.S_IFREG | stat.S_ISUID), b"echo"), ("pdf/doc", b"x")
    )
    assert {file.path: file.is_executable for file in bundle.files} == {
        "SKILL.md": False,
        "doc": False,
        "run": True,
    }
    with zipfile.ZipFile(io.BytesIO(pack_skill(bundle))) as archive:
        modes = {entry.filename: entry.external_attr >> 16 & 0o7777 for entry in archive.infolist()}
    assert modes == {"pdf/SKILL.md": 0o644, "pdf/doc": 0o644, "pdf/run": 0o755}


@pytest.mark.parametrize(
    "paths",
    [
        ("pdf/a", "pdf/A"),
        ("pdf/skill.md",),
        ("pdf/\u00e9", "pdf/e\u0301"),
        ("pdf/a", "pdf/a/b"),
        ("pdf/A/b", "pdf/a"),
    ],
)
def test_paths_that_collide_on_some_systems_are_refused(paths: tuple[str, ...]):
    with pytest.raises(InvalidInput, match=r"already|is a file"):
        bundle_from_files(*paths)


@for_each(
    ("head", "reason"),
    [
        ("name: pdf", "description"),
        ("name: pdf\ndescription: ' '", "description"),
        ("name: pdf\ndescription: 3", "description"),
        ("name: pdf\ndescription: " + "d" * 1025, "at most 1024"),
        ("name: -pdf\ndescription: d", "name"),
        ("name: p--df\ndescription: d", "name"),
        ("name: 7\ndescription: d", "name"),
        ("name: " + "n" * 65 + "\ndescription: d", "name"),
        ("- a list", "not a YAML mapping"),
        ("a: b: c", "not YAML"),
    ],
)
def test_an_incomplete_manifest_is_refused(head: str, reason: str):
    with pytest.raises(InvalidInput, match=rf"^pdf/SKILL\.md(?::2)?: .*{reason}"):
        bundle_from_files(manifest=f"---\n{head}\n---\nRead.".encode())


def test_a_skill_without_a_name_is_named_after_its_folder():
    assert bundle_from_files(manifest=b"---\ndescription: d\n---").name == "pdf"


def test_the_hash_depends_only_on_the_files():
    alone = bundle_from_files("pdf/a", "pdf/b")
    assert alone.content_hash == bundle_from_files("pdf/b", "pdf/a").content_hash
    assert (
        alone.content_hash == bundle_from_zip(("pdf/a", b"pdf/a"), ("pdf/b", b"pdf/b")).content_hash
    )
    assert alone.content_hash != bundle_from_files("pdf/a", "pdf/c").content_hash
    assert pack_skill(alone) == pack_skill(bundle_from_files("pdf/b", "pdf/a"))


_SEGMENT = st.text(
    st.sampled_from("ab.-_~ /\\:\0\n\u202e\u00e9\ud800 A"), min_size=0, max_size=6
) | st.sampled_from(["..", ".", "", "con", "SKILL.md"])


@given(path=st.lists(_SEGMENT, max_size=5).map("/".join) | st.text(max_size=40))
@example(path="a/" * 20 + "b")
@example(path="a" * 300)
def test_an_accepted_path_stays_inside_any_folder(path: str):
    try:
        checked = check_path(path)
    except InvalidInput:
        return
    root = PurePosixPath("/root/of/it")
    assert os.path.normpath(root / checked).startswith(f"{root}/")
    assert str(checked) == path
    assert path.isprintable()
    assert "\\" not in path


_NAMES = st.text("abcXYZ-_.\u00e9", min_size=1, max_size=8)
_TREES = st.dictionaries(
    st.lists(_NAMES, min_size=1, max_size=3).map("/".join), st.binary(max_size=50), max_size=8
)


@given(tree=_TREES)
def test_a_stored_skill_unpacks_to_the_uploaded_files(tree: dict[str, bytes]):
    uploads = [UploadedFile(path=f"pdf/{path}", content=content) for path, content in tree.items()]
    try:
        bundle = read_skill_bundle(
            [UploadedFile(path="pdf/SKILL.md", content=MANIFEST), *uploads], LIMITS
        )
    except InvalidInput:
        return
    with TemporaryDirectory() as folder:
        archive = Path(folder) / "a.zip"
        archive.write_bytes(pack_skill(bundle))
        extract(archive, Path(folder) / "out")
        out = Path(folder) / "out"
        found = {
            f.relative_to(out).as_posix(): f.read_bytes() for f in out.rglob("*") if f.is_file()
        }
    assert found == {**tree, "SKILL.md": MANIFEST}


@given(content=st.binary(max_size=300), at=st.integers(0, 400))
def test_a_damaged_archive_is_refused_or_read_without_another_error(content: bytes, at: int):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pdf/SKILL.md", MANIFEST)
    whole = buffer.getvalue()
    damaged = whole[:at] + content + whole[at + len(content) :]
    with suppress(InvalidInput, TooLarge):
        read_skill_bundle([UploadedFile(path="a.zip", content=damaged)], LIMITS)

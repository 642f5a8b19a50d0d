from pathlib import Path

import pytest

from layline.data.images.listing import IMAGE_SUFFIXES, list_images


def test_images_are_listed_in_natural_order_without_what_is_not_one(tmp_path):
    wanted = ["2/a.PNG", "2/b9.jpg", "2/b10.jpg", "10/x.jpeg", "A.tiff", "b.webp"]
    clutter = [
        *("notes.txt", "Thumbs.db", ".DS_Store", ".hidden.jpg", "2/._b9.jpg", "jpg"),
        *("__MACOSX/2/b9.jpg", ".ipynb_checkpoints/b.jpg", "2/@eaDir/b9.jpg", "models.pt"),
    ]
    for name in wanted[::-1] + clutter:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert list_images(tmp_path) == [tmp_path / name for name in wanted]
    assert {Path(name).suffix.lower() for name in wanted} <= IMAGE_SUFFIXES


def test_links_are_followed_but_not_in_circles(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.png").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
    (tmp_path / "real" / "up").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "lost.png").symlink_to(tmp_path / "nowhere")
    names = [path.relative_to(tmp_path).as_posix() for path in list_images(tmp_path)]
    assert names == ["link/a.png", "lost.png", "real/a.png"]


def test_a_folder_that_is_none_is_named(tmp_path):
    for folder in (tmp_path / "none", tmp_path / "file"):
        (tmp_path / "file").touch()
        with pytest.raises(FileNotFoundError, match=f"folder must be .* got {folder}"):
            list_images(folder)

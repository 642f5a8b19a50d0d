import pytest

from layline.data import read
from layline.data.sources.manifest import read_manifest


def write(folder, header, rows):
    path = folder / "list.csv"
    path.write_text("\n".join([header, *rows]), encoding="utf-8")
    return path


def ten_each(labels=("2", "10")):
    return [f"{label}/{i}.jpg,{label}" for label in labels for i in range(10)]


def with_splits(extra=()):
    parts = ["train"] * 6 + ["val"] * 2 + ["TEST"] * 2
    return [f"{i}.jpg,{label},{part}" for i, (label, part) in enumerate(both(parts))] + [*extra]


def both(parts):
    return [(label, part) for label in ("low", "high") for part in parts]


def test_paths_and_labels_are_read_and_split(tmp_path):
    write(tmp_path, "path,label", ten_each())
    data = read("csv", tmp_path)
    assert data.classes == ("2", "10")
    assert data.inputs.root == tmp_path
    assert data.inputs.names[10] == "10/0.jpg"
    assert data.ranks.tolist() == [0] * 10 + [1] * 10
    assert [len(part) for part in data.partition.parts().values()] == [14, 2, 4]


@pytest.mark.parametrize(
    "labels", [("1.0", "007"), ("None", "some"), ("no", "YES"), ("-1", "0"), ("1.25", "1.5")]
)
def test_labels_are_kept_as_they_are_written_and_ordered(tmp_path, labels):
    assert read_manifest(write(tmp_path, "path,label", ten_each(labels))).classes == labels


def test_labels_without_an_order_of_their_own_need_one(tmp_path):
    path = write(tmp_path, "path,label", ten_each(("NA", "yes")))
    with pytest.raises(ValueError, match=r"guess to be corrected: --classes NA,yes$"):
        read_manifest(path)
    assert read_manifest(path, classes="yes,NA").classes == ("yes", "NA")


def test_the_columns_and_the_folder_may_be_named(tmp_path):
    (tmp_path / "photos").mkdir()
    rows = [row.replace(",", ";") for row in ten_each(("low", "high"))]
    path = write(tmp_path, "file;stage", rows)
    data = read_manifest(
        path,
        path="file",
        label="stage",
        images=tmp_path / "photos",
        classes="low,high",
    )
    assert data.inputs.root == tmp_path / "photos"
    assert data.classes == ("low", "high")
    with pytest.raises(FileNotFoundError, match="images must be a folder"):
        read_manifest(path, path="file", label="stage", images=tmp_path / "none")


def test_the_split_may_be_given(tmp_path):
    data = read_manifest(write(tmp_path, "path,label,split", with_splits()), classes="low,high")
    assert data.partition.test.tolist() == [8, 9, 18, 19]
    assert data.partition.validation.tolist() == [6, 7, 16, 17]


def test_a_group_stays_together(tmp_path):
    rows = [f"{i}.jpg,{i % 2},patient {i // 4}" for i in range(60)]
    data = read_manifest(write(tmp_path, "path,label,group", rows))
    homes = [{i // 4 for i in part} for part in data.partition.parts().values()]
    assert sum(map(len, homes)) == 15
    assert data.groups == tuple(row.split(",")[2] for row in rows)
    ungrouped = read_manifest(tmp_path, group=None)
    assert ungrouped.groups is None
    assert data.drop([0, 5]).groups == (*data.groups[1:5], *data.groups[6:])
    assert len(ungrouped.partition.test) == 12


def test_exact_repetitions_are_left_out_and_told(tmp_path):
    rows = with_splits(["./0.jpg,low,training", "1.jpg,low,train"])
    data = read_manifest(write(tmp_path, "path,label,split", rows))
    assert len(data.inputs) == 20
    assert "Of rows that repeat another 2 were left out" in data.notes


def test_paths_written_on_windows_are_understood(tmp_path):
    rows = [row.replace("/", "\\") for row in ten_each()]
    assert read_manifest(write(tmp_path, "path,label", rows)).inputs.names[0] == "2/0.jpg"


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("0.jpg,low,test", r"one split, got several for 0\.jpg: keep one row"),
        ("0.jpg,high,train", r"one label, got several for 0\.jpg: keep one row"),
        ("x.jpg,,train", "column 'label' must be filled, got nothing in row 22"),
        (",low,train", "column 'path' must be filled, got nothing in row 22"),
        ("x.jpg,low,", "column 'split' must be filled, got nothing in row 22"),
        ("x.jpg,low,holdout", "split must be one of train, .*, got 'holdout'"),
        ("x.jpg,mid,test", "test part must have classes of the train part only, got mid"),
    ],
)
def test_rows_that_cannot_be_meant_are_refused(tmp_path, extra, message):
    path = write(tmp_path, "path,label,split", with_splits([extra]))
    with pytest.raises(ValueError, match=message):
        read_manifest(path)


def test_many_paths_in_two_splits_are_counted(tmp_path):
    rows = [f"{i}.jpg,{i % 2},{part}" for part in ("train", "test") for i in range(30)]
    with pytest.raises(ValueError, match=r"for 0\.jpg, 1\.jpg, .* 19\.jpg … \(30 in all\)"):
        read_manifest(write(tmp_path, "path,label,split", rows))


def test_a_label_outside_the_classes_is_named_with_its_row(tmp_path):
    path = write(tmp_path, "path,label", [*ten_each(), "x.jpg,11"])
    with pytest.raises(ValueError, match="labels must be among 2, 10, got '11' in row 22"):
        read_manifest(path, classes=[2, 10])
    with pytest.raises(ValueError, match="classes must be labels of the data, got '12'"):
        read_manifest(path, classes="2,10,11,12")


def test_a_group_in_two_given_splits_is_named(tmp_path):
    rows = [f"{row},{i}" for i, row in enumerate(with_splits())] + ["x.jpg,low,test,0"]
    with pytest.raises(ValueError, match="in one part only, got '0' in train and test"):
        read_manifest(write(tmp_path, "path,label,split,group", rows))


def test_a_missing_column_is_answered_with_those_there_are(tmp_path):
    path = write(tmp_path, "file,labels,age", [f"{row},3" for row in ten_each()])
    with pytest.raises(ValueError, match=r"got 'label': say which .* are file, labels, age"):
        read_manifest(path)
    with pytest.raises(
        ValueError, match=r"got 'labls': did you mean 'labels'\? it has file, labels"
    ):
        read_manifest(path, label="labls")
    other = write(tmp_path, "age,labels", ["3,1", "4,2"])
    with pytest.raises(ValueError, match=r"path must be a column of list.csv, got 'path'"):
        read_manifest(other)


def test_one_class_is_not_enough(tmp_path):
    path = write(tmp_path, "path,label", ten_each(("2",)))
    with pytest.raises(ValueError, match=r"classes must be at least two, got \['2'\]"):
        read_manifest(path)

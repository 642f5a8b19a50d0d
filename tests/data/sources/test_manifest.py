import openpyxl
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
    assert [len(part) for part in data.splits.by_name().values()] == [14, 2, 4]


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
    homes = [{i // 4 for i in part} for part in data.splits.by_name().values()]
    assert sum(map(len, homes)) == 15
    assert data.groups == tuple(row.split(",")[2] for row in rows)
    ungrouped = read_manifest(tmp_path, group=None)
    assert ungrouped.groups is None
    assert data.drop([0, 5]).groups == (*data.groups[1:5], *data.groups[6:])
    assert len(ungrouped.splits.test) == 12


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


def test_the_former_names_of_the_columns_are_understood(tmp_path):
    path = write(tmp_path, "file,stage,who", [f"{i}.jpg,{i % 2},{i // 3}" for i in range(30)])
    new = read("csv", path, path="file", label="stage", group="who")
    old = read("csv", path, path_column="file", label_column="stage", group_column="who")
    assert old.inputs.names == new.inputs.names
    assert old.groups == new.groups
    assert old.splits.test.tolist() == new.splits.test.tolist()
    with pytest.raises(ValueError, match="label must be given once, got label_column beside it"):
        read("csv", path, label="stage", label_column="stage")
    with pytest.raises(ValueError, match="option of csv must be a known name, got 'id_column'"):
        read("csv", path, id_column="who")


def test_a_group_may_be_found_in_the_path(tmp_path):
    rows = [f"p{i // 4}_{i}.jpg,{i % 2}" for i in range(60)]
    data = read_manifest(write(tmp_path, "path,label", rows), group_by=r"p\d+")
    assert data.groups == tuple(row.partition("_")[0] for row in rows)
    assert "15 groups in 60 images, the largest has 4" in data.notes
    path = write(tmp_path, "path,label,group", [f"{row},1" for row in rows])
    with pytest.raises(ValueError, match=r"group_by must be left out where a column .* 'group'"):
        read_manifest(path, group_by=r"p\d+")


def test_a_column_of_patients_is_told_where_it_is_no_group(tmp_path):
    rows = [f"{i}.jpg,{i % 2},{i // 4}" for i in range(60)]
    path = write(tmp_path, "path,label,patient_id", rows)
    note = "--group patient_id keeps its samples in one part"
    assert note in read_manifest(path).notes[-1]
    assert not any(note in each for each in read_manifest(path, group="patient_id").notes)


def put(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"")


def test_ids_find_their_files_and_that_is_told(tmp_path):
    put(tmp_path / "photos", *(f"{i:04}.{'jpg' if i % 2 else 'PNG'}" for i in range(20)))
    path = write(tmp_path, "id_code,diagnosis", [f"{i:04},{i % 2}" for i in range(20)])
    data = read_manifest(path)
    assert data.inputs.names[:2] == ("0000.PNG", "0001.jpg")
    assert data.inputs.root == tmp_path / "photos"
    told = "20 of 20 images are named without their ending, such as 0000 for 0000.PNG"
    assert told in data.notes
    assert "The images are taken from the column 'id_code'" in data.notes


def test_an_id_of_two_files_is_refused_unless_one_can_be_read(tmp_path):
    put(tmp_path, *(f"{i}.jpg" for i in range(20)), "3.dcm")
    path = write(tmp_path, "path,label", [f"{i},{i % 2}" for i in range(20)])
    assert read_manifest(path).inputs.names[3] == "3.jpg"
    put(tmp_path, "3.png")
    with pytest.raises(
        ValueError, match=r"one file, got 3\.jpg, 3\.png for '3' in row 5: write its ending"
    ):
        read_manifest(path)


def test_a_file_without_an_ending_is_itself(tmp_path):
    put(tmp_path, *(str(i) for i in range(20)), "3.png")
    path = write(tmp_path, "path,label", [f"{i},{i % 2}" for i in range(20)])
    assert read_manifest(path).inputs.names == tuple(map(str, range(20)))


def test_names_that_are_no_unicode_are_found(tmp_path):
    names = [f"caf\udce9 {i}.jpg" for i in range(20)]
    put(tmp_path, *names)
    path = tmp_path / "list.csv"
    rows = [f"{name},{i % 2}" for i, name in enumerate(names)]
    path.write_bytes("\n".join(["path,label", *rows]).encode(errors="surrogateescape"))
    assert read_manifest(path).inputs.names == tuple(names)


def test_a_workbook_is_a_list_like_any_other(tmp_path):
    put(tmp_path, *(f"{i:03}.jpg" for i in range(20)))
    book = openpyxl.Workbook()
    book.active.append(["notes"])
    sheet = book.create_sheet("images")
    sheet.append(["image", "grade"])
    for i in range(20):
        sheet.append([i, f"grade {i % 2}"])
        sheet.cell(sheet.max_row, 1).number_format = "000"  # as it is shown
    book.save(tmp_path / "list.xlsx")
    data = read("csv", tmp_path / "list.xlsx", sheet="images")
    assert data.inputs.names[7] == "007.jpg"
    assert data.classes == ("grade 0", "grade 1")

//! What is read and what is refused, on data sets of a few images that are made here.

use std::io::{Cursor, Write};
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::*;

/// Pixels and labels of so many images.
fn part(count: usize) -> (Vec<u8>, Vec<u8>) {
    ((0..count * PIXELS).map(|at| (at % 251) as u8).collect(), (0..count).map(|at| (at % 10) as u8).collect())
}

fn idx(shape: &[u32], bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0, 0, 8, shape.len() as u8];
    for length in shape {
        file.extend(length.to_be_bytes());
    }
    file.extend(bytes);
    file
}

fn npy(version: u8, header: &str, bytes: &[u8]) -> Vec<u8> {
    let mut file = b"\x93NUMPY".to_vec();
    file.extend([version, 0]);
    let length = (header.len() as u32).to_le_bytes();
    file.extend(&length[..if version == 1 { 2 } else { 4 }]);
    file.extend(header.as_bytes());
    file.extend(bytes);
    file
}

fn array(shape: &str, bytes: &[u8]) -> Vec<u8> {
    npy(1, &format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({shape}), }}\n"), bytes)
}

/// The arrays of a good file.
fn members() -> [(&'static str, Vec<u8>); 4] {
    let ((images, labels), (held, classes)) = (part(7), part(3));
    [
        ("x_train.npy", array("7, 28, 28", &images)),
        ("y_train.npy", array("7,", &labels)),
        ("x_test.npy", array("3, 28, 28", &held)),
        ("y_test.npy", array("3,", &classes)),
    ]
}

fn zipped(members: &[(&str, Vec<u8>)], how: CompressionMethod) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        zip.start_file(*name, SimpleFileOptions::default().compression_method(how)).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

fn from_npz(bytes: &[u8]) -> Result<Mnist, String> {
    read_npz(Path::new("/d/mnist.npz"), Cursor::new(bytes)).map_err(|error| error.to_string())
}

fn from_idx(kind: Kind, bytes: &[u8]) -> Result<Vec<u8>, String> {
    read_idx(Path::new("/d/f"), kind, bytes.len() as u64, bytes).map_err(|error| error.to_string())
}

/// A folder with the four files, packed or not, under one of the spellings.
fn folder_of_idx(dot: &str, pack: bool) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let ((images, labels), (held, classes)) = (part(7), part(3));
    for (name, end, bytes) in [
        ("train-images", "idx3-ubyte", idx(&[7, 28, 28], &images)),
        ("train-labels", "idx1-ubyte", idx(&[7], &labels)),
        ("t10k-images", "idx3-ubyte", idx(&[3, 28, 28], &held)),
        ("t10k-labels", "idx1-ubyte", idx(&[3], &classes)),
    ] {
        let (bytes, gz) = if pack { (packed(&bytes), ".gz") } else { (bytes, "") };
        std::fs::write(folder.path().join(format!("{name}{dot}{end}{gz}")), bytes).unwrap();
    }
    folder
}

#[test]
fn all_forms_give_the_same_images() {
    let whole = from_npz(&zipped(&members(), CompressionMethod::Deflated)).unwrap();
    assert_eq!((whole.training(), whole.held_out(), whole.side()), (7, 3, 28));
    assert_eq!(from_npz(&zipped(&members(), CompressionMethod::Stored)).as_ref(), Ok(&whole));
    for (dot, pack) in [("-", false), (".", false), ("-", true), (".", true)] {
        let folder = folder_of_idx(dot, pack);
        let found = find(Some(folder.path()), None).unwrap();
        assert!(matches!(found, Found::Idx(_)));
        assert_eq!(Mnist::open(&found).unwrap(), whole, "{dot} {pack}");
    }
    assert_eq!((whole.label(6), whole.label(7), whole.label(9)), (6, 0, 2));
    let mut pixels = vec![0.0; PIXELS];
    whole.paint(8, Some(77), &mut pixels);
    let expected: Vec<f32> =
        part(3).0[PIXELS..][..PIXELS].iter().map(|ink| f32::from(*ink) / 255.0).collect();
    assert_eq!(pixels, expected);
}

#[test]
fn an_array_of_version_2_is_read() {
    let mut members = members();
    let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (7,), }";
    members[1].1 = npy(2, header, &part(7).1);
    assert!(from_npz(&zipped(&members, CompressionMethod::Stored)).is_ok());
}

#[test]
fn what_is_wrong_in_an_npz_is_said_with_its_place() {
    let (images, labels) = part(7);
    let header = |text: &str| npy(1, &format!("{{'fortran_order': False, {text}}}"), &labels);
    let mut bad_label = labels.clone();
    bad_label[4] = 10;
    let mut long = array("7,", &labels);
    long.push(0);
    let mut dear = npy(2, "", &[]);
    dear[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    for (member, bytes, said) in [
        (0, array("7, 28, 29", &images), "shape is [7, 28, 29]; it must be [.., 28, 28]"),
        (0, array("7, 784", &images), "shape is [7, 784]"),
        (0, array("8, 28, 28", &images), "8 images, 6272 bytes; at most 5488 can be there"),
        (0, array("6, 28, 28", &images), "goes on behind the 4704 bytes"),
        (0, array("0, 28, 28", &[]), "has no images"),
        (0, array("18446744073709551615, 28, 28", &images), "at most 131072 are read"),
        (1, array("131072,", &labels), "131072 labels, 131072 bytes; at most 7 can be there"),
        (1, array("7, 1", &labels), "shape is [7, 1]; it must be [..]"),
        (1, array("7,", &bad_label), "label 4 (from 0) is 10"),
        (1, array("6,", &labels[..6]), "6 labels, but there are 7 images in /d/mnist.npz, x_train.npy"),
        (1, long, "goes on behind the 7 bytes"),
        (1, header("'descr': '<i8', 'shape': (7,)"), "type is '<i8'"),
        (1, npy(4, "", &[]), ".npy of version 4"),
        (1, dear, "header says that it is 4294967295 bytes long"),
        (1, npy(1, "", &[]), "has no descr"),
        (1, Vec::new(), "header can't be read"),
        (1, b"PK not an array".to_vec(), "does not begin as an .npy array does"),
    ] {
        let mut members = members();
        members[member].1 = bytes;
        let file = zipped(&members, CompressionMethod::Deflated);
        let error = from_npz(&file).unwrap_err();
        let place = format!("/d/mnist.npz, {}: ", members[member].0);
        assert!(error.starts_with(&place) && error.contains(said), "{said}: {error}");
    }
    let error = from_npz(&zipped(&members()[..3], CompressionMethod::Stored)).unwrap_err();
    assert_eq!(error, "/d/mnist.npz, y_test.npy: is not in the archive");
    assert!(from_npz(b"not a zip").unwrap_err().starts_with("/d/mnist.npz: "));
}

#[test]
fn an_npz_with_any_byte_of_its_data_changed_or_cut_off_is_refused() {
    for how in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let good = zipped(&members(), how);
        let whole = from_npz(&good).unwrap();
        for at in (0..good.len()).step_by(if how == CompressionMethod::Stored { 61 } else { 1 }) {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            // A date or the like may be anything; then what is read is what was written.
            if let Ok(read) = from_npz(&bad) {
                assert_eq!(read, whole, "{how} byte {at}");
            }
            assert!(from_npz(&good[..at]).is_err(), "{how} cut at {at}");
        }
        // The middle of the first array is data alone.
        let mut bad = good.clone();
        let middle = if how == CompressionMethod::Stored { 2000 } else { 200 };
        bad[middle] ^= 1;
        let error = from_npz(&bad).unwrap_err();
        assert!(error.starts_with("/d/mnist.npz, x_train.npy: "), "{error}");
    }
}

#[test]
fn a_bomb_is_refused_before_it_is_unpacked() {
    // 60 MB of nothing in 60 KB, where the header says one image; and one whose header says all of it.
    for (shape, said) in [("1, 28, 28", "goes on behind the 784 bytes"), ("999999, 28, 28", "at most 131072")]
    {
        let mut members = members();
        members[0].1 = array(shape, &vec![0; 60_000_000]);
        let file = zipped(&members, CompressionMethod::Deflated);
        assert!(file.len() < 100_000);
        let error = from_npz(&file).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
    let error = from_idx(Kind::Images, &packed(&idx(&[1, 28, 28], &vec![0; 10_000_000]))).unwrap_err();
    assert!(error.contains("goes on behind"), "{error}");
}

#[test]
fn what_is_wrong_in_an_idx_file_is_said() {
    let (images, labels) = part(7);
    let good = idx(&[7, 28, 28], &images);
    assert_eq!(from_idx(Kind::Images, &good), Ok(images.clone()));
    assert_eq!(from_idx(Kind::Images, &packed(&good)), Ok(images.clone()));
    let mut swapped = packed(&good);
    let end = swapped.len();
    swapped[end - 8] ^= 1;
    let mut behind = packed(&good);
    behind.extend([0, 1, 2]);
    let cases: [(Kind, &[u8], &str); 14] = [
        (Kind::Images, &idx(&[7], &labels), "begins with 00000801; IDX images begin with 00000803"),
        (Kind::Labels, &good, "begins with 00000803; IDX labels begin with 00000801"),
        (Kind::Images, &idx(&[7, 32, 32], &images), "shape is [7, 32, 32]"),
        (Kind::Images, &idx(&[8, 28, 28], &images), "8 images, 6272 bytes; at most 5488 can be there"),
        (Kind::Images, &idx(&[6, 28, 28], &images), "goes on behind the 4704 bytes"),
        (Kind::Images, &idx(&[u32::MAX, 28, 28], &images), "says 4294967295 images; at most 131072"),
        (Kind::Images, &good[..9], "header can't be read"),
        (Kind::Images, b"", "header can't be read"),
        (Kind::Images, &packed(&good)[..end - 4], "behind its 5488 bytes: "),
        (Kind::Images, &packed(&good)[..end / 2], "of 5488 bytes: "),
        (Kind::Images, &swapped, "behind its 5488 bytes: "),
        (Kind::Images, &behind, "behind its 5488 bytes: "),
        (Kind::Labels, &idx(&[2], &[9, 200]), "label 1 (from 0) is 200; the classes are 0 to 9"),
        (Kind::Labels, &idx(&[0], &[]), "has no labels"),
    ];
    for (kind, bytes, said) in cases {
        let error = from_idx(kind, bytes).unwrap_err();
        assert!(error.starts_with("/d/f: ") && error.contains(said), "{said}: {error}");
    }
}

#[test]
fn files_that_do_not_belong_together_are_refused() {
    let folder = folder_of_idx("-", false);
    std::fs::write(folder.path().join("t10k-labels-idx1-ubyte"), idx(&[4], &[1, 2, 3, 4])).unwrap();
    let error = Mnist::open(&find(Some(folder.path()), None).unwrap()).unwrap_err().to_string();
    assert!(error.contains("t10k-labels-idx1-ubyte: 4 labels, but there are 3 images in "), "{error}");
}

#[test]
fn places_are_looked_at_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    let write = |path: PathBuf| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, zipped(&members(), CompressionMethod::Stored)).unwrap();
    };
    let said = |data: Option<&Path>, keras| find(data, keras).unwrap_err().to_string();
    let keras = at("home/.keras");
    let error = said(None, Some(&keras));
    let cwd = std::env::current_dir().unwrap();
    for part in [
        at("home/.keras/datasets/mnist.npz").display().to_string(),
        at("home/.keras/datasets/train-images-idx3-ubyte").display().to_string(),
        cwd.join("mnist.npz").display().to_string(),
        cwd.join("data/MNIST/raw/train-images-idx3-ubyte").display().to_string(),
        "keras.datasets.mnist.load_data()".to_owned(),
        "--data".to_owned(),
        "HVTUI_DATA".to_owned(),
        "`hvtui train digits`".to_owned(),
    ] {
        assert!(error.contains(&part), "{part}: {error}");
    }
    write(keras.join("datasets/mnist.npz"));
    let found = Found::Npz(keras.join("datasets/mnist.npz"));
    assert_eq!(find(None, Some(&keras)).unwrap(), found);
    assert_eq!(find(Some(Path::new("")), Some(&keras)).unwrap(), found, "an empty HVTUI_DATA says nothing");
    // What is named is looked at alone.
    let error = said(Some(&at("elsewhere")), Some(&keras));
    assert!(error.contains("elsewhere/mnist.npz") && error.contains("elsewhere/MNIST/raw"), "{error}");
    assert!(!error.contains(".keras/datasets/mnist.npz\n"), "{error}");
    // A file by its content, under any name.
    write(at("renamed"));
    assert_eq!(find(Some(&at("renamed")), None).unwrap(), Found::Npz(at("renamed")));
    std::fs::write(at("notes.txt"), "no data").unwrap();
    assert!(said(Some(&at("notes.txt")), None).contains("notes.txt: neither"));
    // One of the four stands for them, and torchvision's folder for what is in it.
    let idx = folder_of_idx("-", true);
    let one = idx.path().join("t10k-labels-idx1-ubyte.gz");
    assert!(matches!(find(Some(&one), None).unwrap(), Found::Idx(_)));
    std::fs::create_dir_all(at("torch/MNIST")).unwrap();
    std::os::unix::fs::symlink(idx.path(), at("torch/MNIST/raw")).unwrap();
    assert!(matches!(find(Some(&at("torch")), None).unwrap(), Found::Idx(_)));
    // Some of the four: which are missing is said.
    std::fs::remove_file(&one).unwrap();
    let error = said(Some(idx.path()), None);
    assert!(error.contains("these are missing: t10k-labels-idx1-ubyte"), "{error}");
}

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

type Texts = BTreeMap<(Option<u32>, &'static str), String>;

fn split(style: TagStyle, chunks: &[&[u8]]) -> Texts {
    let mut splitter = Splitter::new(style, Stream::Stdout);
    let mut all: BTreeMap<(Option<u32>, &'static str), Vec<u8>> = BTreeMap::new();
    let mut add = |pieces: Vec<(Origin, Vec<u8>)>| {
        for (origin, piece) in pieces {
            all.entry((origin.rank, origin.stream.extension())).or_default().extend(piece);
        }
    };
    for chunk in chunks {
        add(splitter.feed(chunk));
    }
    add(splitter.end());
    all.into_iter().map(|(key, bytes)| (key, String::from_utf8(bytes).unwrap())).collect()
}

macro_rules! sample {
    ($file:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/launchers/", $file))
    };
}

const SAMPLES: [(TagStyle, &str); 4] = [
    (TagStyle::OpenMpi4, sample!("mpirun4.txt")),
    (TagStyle::OpenMpi4, sample!("mpirun4-time.txt")),
    (TagStyle::Horovod, sample!("horovodrun.txt")),
    (TagStyle::Srun, sample!("srun.txt")),
];

#[test]
fn mpiruns_tags_within_a_line_part_two_ranks_with_a_time_and_without() {
    for (style, sample) in &SAMPLES[..2] {
        let texts = split(*style, &[sample.as_bytes()]);
        let out = |rank: u32| {
            let steps = ["1 loss 0.8", "2 loss 0.7", "3 loss 0.6"];
            let steps = steps.map(|step| format!("rank {rank} of 2 host vm step {step}\n")).concat();
            format!("{steps}rank {rank}: no newline at end")
        };
        assert_eq!(texts[&(Some(0), "out")].trim_end(), out(0));
        assert_eq!(texts[&(Some(1), "out")].trim_end(), out(1));
        assert_eq!(texts[&(Some(0), "err")], "rank 0: note on stderr\n");
        assert_eq!(texts[&(Some(1), "err")], "rank 1: note on stderr\n");
        assert!(!texts.contains_key(&(None, "out")), "{texts:?}");
    }
}

#[test]
fn horovodrun_tags_by_itself_or_as_its_mpirun_does() {
    let own = split(TagStyle::Horovod, &[b"[1]<stdout>:a\n[12]<std", b"err>:b\nx\n"]);
    assert_eq!((own[&(Some(1), "out")].as_str(), own[&(Some(12), "err")].as_str()), ("a\n", "b\n"));
    let mpi = split(TagStyle::Horovod, &[b"[1,", b"0]<stdout>:a\n[1,12]<stderr>:b\n"]);
    assert_eq!((mpi[&(Some(0), "out")].as_str(), mpi[&(Some(12), "err")].as_str()), ("a\n", "b\n"));
    let hydra = split(TagStyle::Hydra, &[b"[0] a [1] b\n[1", b"] c\n[x] d\n"]);
    assert_eq!((hydra[&(Some(0), "out")].as_str(), hydra[&(Some(1), "out")].as_str()), ("a [1] b\n", "c\n"));
    assert_eq!(hydra[&(None, "out")], "[x] d\n");
}

#[test]
fn what_has_no_tag_is_the_launchers() {
    let srun = split(TagStyle::Srun, &[SAMPLES[3].1.as_bytes()]);
    assert_eq!(srun[&(Some(1), "out")], "up\n");
    assert!(srun[&(None, "out")].starts_with("srun: error: n2: task 1: Killed\nsrun: launch/slurm"));
    let horovod = split(TagStyle::Horovod, &[SAMPLES[2].1.as_bytes()]);
    assert_eq!(horovod[&(Some(0), "out")].lines().count(), 4);
}

#[test]
fn other_forms_of_a_tag() {
    let one = |style, text: &str| split(style, &[text.as_bytes()]);
    let five = one(TagStyle::OpenMpi5, "[1,3]<stderr>:  x\n[Tue Nov  3 10:05:04 2020][1,0]<stdout>: y\n");
    assert_eq!(five[&(Some(3), "err")], " x\n", "one space is the tag's");
    assert_eq!(five[&(Some(0), "out")], "y\n");
    let detailed = one(TagStyle::OpenMpi5, "[prterun-vm-1@1,2][vm:77]<stdout>: z\n");
    assert_eq!(detailed[&(Some(2), "out")], "z\n");
    assert_eq!(one(TagStyle::Horovod, "Tue Nov 10 10:05:04 2020[1]<stderr>:t")[&(Some(1), "err")], "t");
    assert_eq!(one(TagStyle::Srun, "07: a: 1: b\n")[&(Some(7), "out")], "a: 1: b\n");
    for (style, text) in [
        (TagStyle::OpenMpi4, "[1,0]<stdlog>:a [1,x]<stdout>: Sat No [99999999999,1]\n[1"),
        (TagStyle::Srun, "x 0: a\n12 : b\n5"),
        (TagStyle::Horovod, "Sat Nov 21 01:24:45 2026<stdout>:x [4294967296]<stdout>:"),
    ] {
        assert_eq!(one(style, text), BTreeMap::from([((None, "out"), text.to_owned())]), "{style:?}");
    }
}

proptest! {
    #[test]
    fn the_result_does_not_depend_on_where_chunks_end(
        which in 0..SAMPLES.len(),
        mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let (style, text) = SAMPLES[which];
        let bytes = text.as_bytes();
        let mut ends: Vec<usize> = cuts.drain(..).map(|cut| cut.index(bytes.len())).collect();
        ends.extend([0, bytes.len()]);
        ends.sort_unstable();
        let chunks: Vec<&[u8]> = ends.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        prop_assert_eq!(split(style, &chunks), split(style, &[bytes]));
    }

    #[test]
    fn whatever_comes_nothing_is_lost_but_tags(text in "[\\[\\]<>:0-9a-z,\n SatNov]{0,200}", cut in any::<prop::sample::Index>()) {
        for style in [TagStyle::Horovod, TagStyle::OpenMpi4, TagStyle::OpenMpi5, TagStyle::Srun, TagStyle::Hydra] {
            let (a, b) = text.as_bytes().split_at(if text.is_empty() { 0 } else { cut.index(text.len()) });
            let whole = split(style, &[text.as_bytes()]);
            prop_assert_eq!(&split(style, &[a, b]), &whole);
            if !text.contains("<std") && style != TagStyle::Srun && style != TagStyle::Hydra {
                prop_assert_eq!(whole.get(&(None, "out")).cloned().unwrap_or_default(), text.clone());
            }
        }
    }
}

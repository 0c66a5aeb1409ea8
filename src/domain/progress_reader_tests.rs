//! The fixtures are what the programs wrote into files: tqdm 4.70, Keras 3.15 (jax), Lightning 2.6, Transformers 4.46.

use proptest::prelude::*;

use super::*;
use crate::domain::log::Stream::{Stderr, Stdout};

const TQDM: &[u8] = include_bytes!("../../tests/fixtures/progress/tqdm.err");
const KERAS: &[u8] = include_bytes!("../../tests/fixtures/progress/keras3.out");
const LIGHTNING: &[u8] = include_bytes!("../../tests/fixtures/progress/lightning.out");
const TRAINER: &[u8] = include_bytes!("../../tests/fixtures/progress/trainer.err");
const TRAINER_LOSS: &[u8] = include_bytes!("../../tests/fixtures/progress/trainer.out");

/// All that is told of bytes that come in pieces of this size; the numbers never fall.
fn updates(data: &[u8], cut: usize) -> Vec<Update> {
    let mut reader = ProgressReader::default();
    let told: Vec<_> = data.chunks(cut).filter_map(|piece| reader.push(Stdout, piece)).collect();
    assert!(never_falls(&told), "{told:#?}");
    told
}

fn never_falls(told: &[Update]) -> bool {
    told.windows(2).all(|two| {
        let same = (two[0].sure, two[0].counts) == (two[1].sure, two[1].counts);
        if same { two[0].at <= two[1].at } else { two[1].sure >= two[0].sure }
    })
}

fn lines(reader: &mut ProgressReader, lines: &[&str]) -> Vec<(u64, Option<f32>)> {
    let told = lines.iter().filter_map(|line| reader.push(Stdout, format!("{line}\n").as_bytes()));
    told.map(|update| (update.at, update.loss)).collect()
}

#[test]
fn epochs_add_up_and_validation_is_no_training() {
    for cut in [1, 7, 100, 100_000] {
        let last = |data| updates(data, cut).pop().expect("steps");
        let tqdm = last(TQDM);
        assert_eq!((tqdm.at, tqdm.done, tqdm.total, tqdm.sure), (20, 10, Some(10), true), "pieces of {cut}");
        assert_eq!((tqdm.epoch, tqdm.loss), (Some(1.0), Some(0.1)));
        let keras = last(KERAS);
        assert_eq!((keras.at, keras.total, keras.total_steps(), keras.sure), (24, Some(12), Some(24), true));
        assert_eq!((keras.epoch, keras.loss.is_some(), keras.loss_is_mean), (Some(2.0), true, true));
        let lightning = last(LIGHTNING);
        assert_eq!((lightning.at, lightning.total, lightning.epoch), (32, Some(16), Some(1.0)));
    }
}

#[test]
fn each_step_of_a_bar_is_told_when_it_comes() {
    let mut steps: Vec<_> = updates(LIGHTNING, 1).iter().map(|update| update.at).collect();
    steps.dedup();
    assert_eq!(steps, (1..=32).collect::<Vec<_>>());
}

#[test]
fn the_trainers_losses_belong_to_its_bar() {
    let mut reader = ProgressReader::default();
    reader.push(Stderr, TRAINER).expect("a bar");
    let update = reader.push(Stdout, TRAINER_LOSS).expect("losses");
    // its bar has no label: that it is training is not certain
    assert_eq!((update.at, update.total, update.sure, update.loss), (32, Some(32), false, Some(0.7542)));
    assert_eq!(update.epoch, Some(1.88));
}

#[test]
fn an_unfinished_bar_is_read() {
    let mut reader = ProgressReader::default();
    assert_eq!(reader.push(Stderr, b"\rtrain:  45%|#### | 45/100 [00:10<00:12,  4.5"), None);
    let update = reader.push(Stderr, b"0it/s, loss=0.5]").expect("the bar is whole");
    assert_eq!((update.at, update.loss, update.per_second), (45, Some(0.5), Some(4.5)));
    assert_eq!(reader.push(Stderr, b"\n"), None, "nothing new");
    assert_eq!(reader.latest(), Some(&update));
    // of Keras' the loss may be cut
    let mut reader = ProgressReader::default();
    reader.push(Stdout, b"Epoch 1/2\n");
    let update =
        reader.push(Stdout, b"\r 3/12 [====>....] - ETA: 3s - loss: 0.6").expect("the numbers are whole");
    assert_eq!((update.at, update.loss, update.sure), (3, None, true));
    assert_eq!(reader.push(Stdout, b"875\x08\x08\r").map(|update| update.loss), Some(Some(0.6875)));
}

#[test]
fn a_gap_parts_pieces() {
    let mut reader = ProgressReader::default();
    reader.push(Stdout, b"\rtrain:  45%|#### | 4");
    reader.gap(Stdout);
    assert_eq!(reader.push(Stdout, b"5/100 [00:10<00:12,  4.50it/s]\r"), None);
    assert_eq!(reader.push(Stdout, b"46/100 [00:10<00:12,  4.50it/s]\r").map(|update| update.at), Some(46));
}

#[test]
fn long_lines_are_passed_over() {
    let mut reader = ProgressReader::default();
    for _ in 0..10_000 {
        assert_eq!(reader.push(Stdout, b"nothing but text "), None);
    }
    assert!(reader.tails[0].kept.capacity() <= 2 * LONGEST);
    assert_eq!(reader.push(Stdout, b"1/9 [00:10<00:12,  4.50it/s]\n"), None, "the end of that line");
    assert!(reader.push(Stdout, b"1/9 [00:10<00:12,  4.50it/s]\n").is_some());
}

#[test]
fn what_is_known_to_be_training_leads() {
    let mut reader = ProgressReader::default();
    let told =
        lines(&mut reader, &["50%|#| 500/999 [00:10<00:12, 4.5it/s]", "1%|#| 5/999 [00:10<00:12, 4.5it/s]"]);
    assert_eq!(told, [(500, None), (505, None)], "a bare bar may be training");
    let told = lines(
        &mut reader,
        &[
            "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.25",
            "Epoch [1/5], Step [100/600], Loss: 0.5",
            "9%|#| 90/999 [00:10<00:12, 4.5it/s]",
            "Train Epoch: 1 [1280/60000 (1%)]\tLoss: 2.0",
            "Epoch [1/5], Step [200/600], Loss: 0.25",
            "Epoch [2/5], Step [100/600], Loss: 0.125",
            "Epoch [2/5], Step [99/600], Loss: 0.125",
            "Epoch [1/5], Step [600/600], Loss: 0.125",
        ],
    );
    let steps = [(640, Some(2.25)), (100, Some(0.5)), (200, Some(0.25)), (300, Some(0.125))];
    assert_eq!(told, steps, "samples only while nothing counts steps; no line of another process");
    assert_eq!(reader.latest().and_then(Update::total_steps), Some(3000));
}

#[test]
fn an_evaluation_of_keras_is_no_epoch() {
    let mut reader = ProgressReader::default();
    let bar = |done| format!("{done}/16 [=====>....] - ETA: 3s - loss: 0.5");
    let told = lines(
        &mut reader,
        &["Epoch 1/2", &bar(8), &bar(16), &bar(1), &bar(16), "Epoch 2/2", &bar(4), &bar(3)],
    );
    assert_eq!(told.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [8, 16, 20]);
    // a fit of one epoch has no such line, and might be an evaluation
    let mut reader = ProgressReader::default();
    assert_eq!(lines(&mut reader, &[&bar(8)]), [(8, Some(0.5))]);
    assert!(reader.latest().is_some_and(|update| !update.sure));
    assert_eq!(lines(&mut reader, &["16/16 [=====] - 0s 3ms/step"]), [], "predict()");
}

#[test]
fn a_reader_goes_on_behind_a_step() {
    let bar = |done| format!("train: 9%|#| {done}/100 [00:10<00:12, 4.5it/s]");
    let first = |step, done| lines(&mut ProgressReader::resumed(step), &[&bar(done)])[0].0;
    assert_eq!((first(250, 50), first(250, 70), first(250, 20), first(20, 30)), (250, 270, 320, 30));
    let unknown = lines(&mut ProgressReader::resumed(250), &["45it [00:10, 4it/s]"]);
    assert_eq!(unknown, [(295, None)]);
}

#[test]
fn loops_without_end_fill_no_memory() {
    let mut reader = ProgressReader::default();
    for total in 1..1000 {
        lines(&mut reader, &[&format!("9%|#| 1/{total} [00:10<00:12, 4.5it/s]")]);
    }
    assert_eq!(reader.tracks.len(), TRACKS);
}

fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        (0u64..40, 1u64..4, 0u64..3).prop_map(|(done, total, epoch)| {
            format!("Epoch {epoch}: 9%|#| {done}/{} [00:10<00:12, 4.5it/s]", total * 10)
        }),
        (0u64..40, 1u64..4).prop_map(|(done, total)| format!("9%|#| {done}/{} [00:10<?, ?it/s]", total * 10)),
        (0u64..40).prop_map(|done| format!("train 9%|#| {done}/{} [00:10<?, ?it/s]", u64::MAX)),
        (0u64..40, 0u64..3)
            .prop_map(|(done, epoch)| format!("Train Epoch: {epoch} [{done}/40 (1%)]\tLoss: 0.5")),
        (0u64..40).prop_map(|done| format!("{done}/40 [===>..] - ETA: 3s - loss: 0.5")),
        (0u64..3).prop_map(|epoch| format!("Epoch {epoch}/3")),
        Just(format!("{}it [00:10, 4it/s]", u64::MAX)),
        Just("{'loss': 0.5, 'epoch': 0.1}".to_owned()),
    ]
}

proptest! {
    #[test]
    fn numbers_never_fall(lines in proptest::collection::vec(line(), 0..60), resumed in prop_oneof![0u64..100, any::<u64>()]) {
        let mut reader = ProgressReader::resumed(resumed);
        let told: Vec<_> = lines.iter().filter_map(|line| reader.push(Stdout, format!("{line}\n").as_bytes())).collect();
        prop_assert!(never_falls(&told), "{told:#?}");
        prop_assert!(told.first().is_none_or(|first| first.at >= resumed.min(first.at)));
    }

    #[test]
    fn bytes_are_never_a_fault(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..20)) {
        let mut reader = ProgressReader::default();
        for piece in pieces {
            reader.push(Stderr, &piece);
        }
    }

    #[test]
    fn the_end_does_not_depend_on_the_cuts(cut in 1usize..400) {
        let last = |data: &[u8], cut| {
            let mut reader = ProgressReader::default();
            for piece in data.chunks(cut) {
                reader.push(Stderr, piece);
            }
            reader.latest().cloned()
        };
        for data in [TQDM, KERAS, LIGHTNING, TRAINER] {
            prop_assert_eq!(last(data, cut), last(data, usize::MAX));
        }
    }
}

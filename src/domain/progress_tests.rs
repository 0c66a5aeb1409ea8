use proptest::prelude::*;

use super::*;

fn said(line: &str) -> Progress {
    recognise(line.as_bytes()).unwrap_or_else(|| panic!("not recognised: {line}"))
}

/// Form, what is counted, role, done, total, epoch, loss.
type Row = (Form, Counts, Role, Option<u64>, Option<u64>, Option<f64>, Option<f32>);

/// Line, what is counted, role, done, total, epoch, loss.
type Bar = (&'static str, Counts, Role, u64, Option<u64>, Option<f64>, Option<f32>);
/// Line, role, done, total, loss.
type KerasLine<'a> = (&'a str, Role, u64, Option<u64>, Option<f32>);

fn row(line: &str) -> Row {
    let said = said(line);
    (said.form, said.counts, said.role, said.done, said.total, said.epoch, said.loss)
}

#[test]
fn bars_of_tqdm() {
    use Counts::Steps;
    use Role::{Training, Unknown};
    let table: &[Bar] = &[
        (
            "Epoch 1:  45%|████▌     | 45/100 [00:10<00:12,  4.50it/s, loss=0.123, v_num=0]",
            Steps,
            Training,
            45,
            Some(100),
            Some(1.0),
            Some(0.123),
        ),
        (" 45%|####5     | 45/100 [00:10<00:12,  4.50it/s]", Steps, Unknown, 45, Some(100), None, None),
        ("45it [00:10,  4.50it/s]", Steps, Unknown, 45, None, None, None),
        ("45it [00:10,  4.50it/s, loss=1e-3]", Steps, Training, 45, None, None, Some(1e-3)),
        ("train: 7it [1:00:10,  2.5s/it]", Steps, Training, 7, None, None, None),
        (
            "Epoch 0:  50%|█████     | 1/2 [00:00<00:00,  4.50it/s, v_num=0, train_loss=0.5]",
            Steps,
            Training,
            1,
            Some(2),
            Some(0.0),
            Some(0.5),
        ),
        ("Training: |          | 0/? [00:00<?, ?it/s]", Steps, Training, 0, None, None, None),
    ];
    for (line, counts, role, done, total, epoch, loss) in table {
        assert_eq!(row(line), (Form::Tqdm, *counts, *role, Some(*done), *total, *epoch, *loss), "{line}");
    }
}

#[test]
fn bars_that_are_not_of_steps_or_say_more() {
    use Counts::{Epochs, Other, Samples, Steps};
    use Role::{Elsewhere, Training, Unknown};
    let table: &[Bar] = &[
        (
            "Validation DataLoader 0:  25%|██▌       | 1/4 [00:00<00:00, 701.74it/s]\x1b[A",
            Steps,
            Elsewhere,
            1,
            Some(4),
            None,
            None,
        ),
        (
            "Sanity Checking DataLoader 0: 100%|██████████| 2/2 [00:00<00:00, 81.05it/s]",
            Steps,
            Elsewhere,
            2,
            Some(2),
            None,
            None,
        ),
        (
            "Evaluating:  25%|██▌       | 1/4 [00:00<00:00, 7.4it/s, loss=0.3]   ",
            Steps,
            Elsewhere,
            1,
            Some(4),
            None,
            Some(0.3),
        ),
        (
            "Loading train data:  25%|██▌       | 1/4 [00:00<00:00, 7.4it/s]",
            Steps,
            Elsewhere,
            1,
            Some(4),
            None,
            None,
        ),
        (
            "Map: 100%|██████████| 1000/1000 [00:00<00:00, 9999.12 examples/s]",
            Samples,
            Elsewhere,
            1000,
            Some(1000),
            None,
            None,
        ),
        ("Epochs:  50%|█████     | 1/2 [00:00<00:00,  1.58it/s]", Epochs, Training, 1, Some(2), None, None),
        ("  7%|▋         | 1/14 [00:00<00:00,  1.58epoch/s]", Epochs, Unknown, 1, Some(14), None, None),
        (
            "Epoch [3/10], loss=0.52, lr=1e-05:   7%|▋   | 1/14 [00:00<00:00,  1.5it/s]",
            Steps,
            Training,
            1,
            Some(14),
            Some(3.0),
            Some(0.52),
        ),
        ("100% 3/3 [00:00<00:00, 98.62 batch/s]", Steps, Unknown, 3, Some(3), None, None),
        (
            "Iteration:  75%|█  | 3/4 [00:00<00:00,  7.02it/s]\x1b[A\x1b[A",
            Steps,
            Training,
            3,
            Some(4),
            None,
            None,
        ),
        (
            "  3%|▎         | 1/32 [00:00<00:07,  4.08step/s, Loss: nan]",
            Steps,
            Unknown,
            1,
            Some(32),
            None,
            None,
        ),
        ("45/100 [00:10<00:12,  4.50blobs/s]", Other, Unknown, 45, Some(100), None, None),
    ];
    for (line, counts, role, done, total, epoch, loss) in table {
        assert_eq!(row(line), (Form::Tqdm, *counts, *role, Some(*done), *total, *epoch, *loss), "{line}");
    }
}

#[test]
fn rates_and_labels_of_tqdm() {
    assert_eq!(said("Epoch [3/10]: 7%|▋   | 1/14 [00:00<00:00,  1.5it/s]").epochs, Some(10));
    assert_eq!(said("7%|▋   | 1/14 [00:00<00:00,  2.00s/it]").per_second, Some(0.5));
    assert_eq!(said("7%|▋   | 1/14 [00:00<00:00,  4.50it/s, loss=2]").per_second, Some(4.5));
    assert_eq!(said("7%|▋   | 1/14 [00:00<?, ?it/s]").per_second, None);
    let label = |line| said(line).label;
    assert_eq!(label("Epoch 1: 7%| | 1/14 [00:00<?, ?it/s]"), label("Epoch 22: 9%| | 2/14 [00:00<?, ?it/s]"));
    assert_eq!(
        label("step loss 0.3 e 1e-5: 7%| | 1/14 [00:00<?, ?it/s]"),
        label("step loss nan: 9%| | 2/14 [00:00<?, ?it/s]")
    );
    assert_ne!(label("train: 7%| | 1/14 [00:00<?, ?it/s]"), label("finetune: 9%| | 2/14 [00:00<?, ?it/s]"));
}

#[test]
fn lines_of_keras() {
    use Role::{Elsewhere, Unknown};
    let bar = "━".repeat(20);
    let coloured = format!(
        "\x1b[1m 1/12\x1b[0m \x1b[32m━\x1b[0m\x1b[37m{bar}\x1b[0m \x1b[1m10s\x1b[0m 959ms/step - accuracy: 0.4688 - loss: 0.7003\x08\x08\x08"
    );
    let plain = format!(" 469/469 {bar} 3s 5ms/step - accuracy: 0.85 - loss: 0.25 - val_loss: 0.2");
    let table: &[KerasLine<'_>] = &[
        (
            " 12/469 [..............................] - ETA: 1:02 - loss: 0.5123 - accuracy: 0.85",
            Unknown,
            12,
            Some(469),
            Some(0.5123),
        ),
        (
            "\x08\x08\x08 13/469 [>.............................] - ETA: 9s - loss: nan",
            Unknown,
            13,
            Some(469),
            None,
        ),
        (
            "469/469 [==============================] - 3s 6ms/step - loss: 0.25 - val_loss: 0.2",
            Unknown,
            469,
            Some(469),
            Some(0.25),
        ),
        (
            "469/469 - 3s - loss: 0.25 - accuracy: 0.9 - 3s/epoch - 6ms/step",
            Unknown,
            469,
            Some(469),
            Some(0.25),
        ),
        ("16/16 - 0s - 786us/step - accuracy: 0.4766 - loss: 0.6959", Unknown, 16, Some(16), Some(0.6959)),
        ("     12/Unknown - 3s 7ms/step - loss: 0.5", Unknown, 12, None, Some(0.5)),
        ("      1/Unknown \x1b[1m0s\x1b[0m 596us/step - loss: 0.6848\x08", Unknown, 1, None, Some(0.6848)),
        ("313/313 [==============================] - 0s 822us/step", Elsewhere, 313, Some(313), None),
        (&coloured, Unknown, 1, Some(12), Some(0.7003)),
        (&plain, Unknown, 469, Some(469), Some(0.25)),
    ];
    for (line, role, done, total, loss) in table {
        assert_eq!(
            row(line),
            (Form::Keras, Counts::Steps, *role, Some(*done), *total, None, *loss),
            "{line}"
        );
    }
    assert!(said(&plain).loss_is_mean);
    assert_eq!(said(&plain).per_second, Some(200.0));
    let begun = said("Epoch 2/5");
    assert_eq!(
        (begun.form, begun.epoch, begun.epochs, begun.done),
        (Form::KerasEpoch, Some(2.0), Some(5), None)
    );
}

#[test]
fn lines_of_examples_and_of_the_trainer() {
    use Role::Training;
    let table: &[(&str, Row)] = &[
        (
            "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.297471",
            (Form::Example, Counts::Samples, Training, Some(640), Some(60000), Some(1.0), Some(2.297_471)),
        ),
        (
            "Train Epoch: 2 [  640/60000] Loss: 0.5300",
            (Form::Example, Counts::Samples, Training, Some(640), Some(60000), Some(2.0), Some(0.53)),
        ),
        (
            "Epoch: [0][  10/5005]\tTime  0.312 ( 1.201)\tData  0.001 ( 0.5)\tLoss 6.9e+00 (7.0e+00)\tAcc@1 0.1",
            (Form::Example, Counts::Steps, Training, Some(10), Some(5005), Some(0.0), Some(6.9)),
        ),
        (
            "Epoch: [3]  [ 10/5005]  eta: 0:10:00  lr: 0.1  loss: 2.3 (2.4)  img/s: 100.0",
            (Form::Example, Counts::Steps, Training, Some(10), Some(5005), Some(3.0), Some(2.3)),
        ),
        (
            "Epoch [1/5], Step [100/600], Loss: 0.1234",
            (Form::Example, Counts::Steps, Training, Some(100), Some(600), Some(1.0), Some(0.1234)),
        ),
        (
            "{'loss': 0.6911, 'grad_norm': 2.1, 'learning_rate': 4.2e-05, 'epoch': 0.31}",
            (Form::Dict, Counts::Other, Training, None, None, Some(0.31), Some(0.6911)),
        ),
        (
            "{'loss': '0.6911', 'learning_rate': '4.2e-05', 'epoch': '0.31'}",
            (Form::Dict, Counts::Other, Training, None, None, Some(0.31), Some(0.6911)),
        ),
    ];
    for (line, expected) in table {
        assert_eq!(row(line), *expected, "{line}");
    }
    assert_eq!(said("Epoch [1/5], Step [100/600], Loss: 0.1234").epochs, Some(5));
}

#[test]
fn other_lines_are_no_progress() {
    for line in [
        "",
        " ",
        "[",
        "]",
        "[]",
        "epoch 1 done",
        "Epoch 1",
        "Epoch [1/5]",
        "Epoch 1/5 took 3 s",
        "Epoch 1 [00:10",
        "Test: [ 10/196]\tTime 0.1",
        "12/05/2026 10:00:01 started [main]",
        "2026-11-21 01:31:08 INFO step [3/4]",
        "3/4 tests passed",
        "1/2",
        "1/",
        "\x1b[1m",
        "\x08",
        "{'eval_loss': 0.7, 'eval_runtime': 0.003, 'epoch': 1.0}",
        "{'train_runtime': 0.0853, 'train_loss': 0.73, 'epoch': 2.0}",
        "{'loss': 0.5",
        "{'loss': 0.5}",
        "a list [1, 2, 3]",
        "x [00:10<]",
        "99999999999999999999999it [00:10, 4it/s]",
        " 45%|4| 1.2k/60.0k [00:10<00:12,  4.50it/s]",
        "vm:1:2 [0] NCCL INFO Channel 00/02 : 0 1 [receive]",
    ] {
        assert_eq!(recognise(line.as_bytes()), None, "{line}");
    }
    assert_eq!(recognise(&[b' '; LONGEST + 1]), None);
}

#[test]
fn lines_of_ones_own_form_begin_with_a_step_and_have_a_training_loss() {
    for (line, done, total, loss) in [
        ("step 12 loss 0.31", 12, None, 0.31),
        ("step 250: train loss 2.3101, val loss 2.3502", 250, None, 2.3101),
        ("iter 100: loss 2.4512, time 23.45ms, mfu 12.10%", 100, None, 2.4512),
        ("Step #100\tLoss: 2.312585", 100, None, 2.312_585),
        ("Iteration 40/500, train_loss=0.5", 40, Some(500), 0.5),
        ("step    1/74 | loss 4.367857 | norm 2.1 | 23.0 ms", 1, Some(74), 4.367_857),
        (
            " iteration      100/  500000 | consumed samples:        25600 | elapsed time per iteration (ms): 303.2 | \
             learning rate: 1.500E-06 | lm loss: 9.100000E+00 |",
            100,
            Some(500_000),
            9.1,
        ),
    ] {
        let told = said(line);
        assert_eq!(
            (told.form, told.counts, told.role),
            (Form::Example, Counts::Steps, Role::Training),
            "{line}"
        );
        assert_eq!((told.done, told.total, told.loss), (Some(done), total, Some(loss)), "{line}");
    }
    for line in [
        "step 250: val loss 2.3502",
        "step 1.5 loss 3",
        "step 3: loading the loss",
        "steps: loss 3",
        "stepping 3 loss 4",
        "iterate 3 loss 4",
        "iter-3 loss 4",
        "step 3",
        "step 3a loss 4",
    ] {
        assert_eq!(recognise(line.as_bytes()), None, "{line}");
    }
}

proptest! {
    #[test]
    fn bytes_are_never_a_fault(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        recognise(&bytes);
    }

    #[test]
    fn what_is_almost_a_line_is_never_a_fault(
        line in "(Epoch ?|Train Epoch: |\\{'|[0-9]{1,25}/?)?[ \\[\\]0-9/%|:<,=é━\u{1b}\u{8}.a-z'{}-]{0,60}( [\\[][0-9:<,]{3,12})?[a-z/=. ]{0,9}[\\]}]?"
    ) {
        recognise(line.as_bytes());
    }

    #[test]
    fn a_bar_says_its_numbers(done in 0u64..100_000, total in 1u64..100_000, epoch in 0u32..99, label in "(train|Epoch|[a-z é]{0,9})") {
        let line = format!("{label} {epoch}: {:3}%|██ | {done}/{total} [00:10<00:12, 4.5it/s]", done * 100 / total);
        let said = said(&line);
        prop_assert_eq!((said.done, said.total), (Some(done), Some(total)));
    }
}

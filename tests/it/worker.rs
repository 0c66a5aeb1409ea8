//! Whole jobs on real data, alone and as several ranks, through the same entry that `hvtui train` uses.

use std::path::Path;
use std::time::Duration;

use crate::common::group_config::{config, own_loopback};
use hvtui::collective::{Collective, Group, GroupConfig};
use hvtui::domain::report::Report;
use hvtui::domain::timing::Phase;
use hvtui::worker::{RankEnv, TrainOptions, WorkerError, run_as};

/// What one rank printed and reported.
struct Outcome {
    printed: String,
    reports: Vec<Report>,
}

impl Outcome {
    fn weights(&self) -> &str {
        self.printed.lines().last().unwrap().strip_prefix("weights sha256 ").unwrap()
    }

    fn last_metric(&self) -> f64 {
        let values = self.reports.iter().filter_map(|report| match report {
            Report::Metric { value, .. } => Some(*value),
            _ => None,
        });
        values.collect::<Vec<_>>()[..].last().copied().unwrap()
    }
}

fn options(job: &str) -> TrainOptions {
    TrainOptions { job: job.to_owned(), seed: 1, ..TrainOptions::default() }
}

fn train(options: &TrainOptions, world: u32) -> Vec<Outcome> {
    train_on(options, world, |_| "")
}

/// With each rank in the domain that `shm_domain` names.
fn train_on(options: &TrainOptions, world: u32, shm_domain: fn(u32) -> &'static str) -> Vec<Outcome> {
    let at = own_loopback();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..world)
            .map(|rank| {
                scope.spawn(move || {
                    let report = folder.join(format!("rank-{rank}.report"));
                    let group = (world > 1).then(|| GroupConfig {
                        shm_domain: shm_domain(rank).to_owned(),
                        ..config(at, rank, world, Duration::from_secs(60))
                    });
                    let env = RankEnv {
                        rank,
                        world,
                        place: Some(format!("here:{rank}")),
                        report: Some(report.clone()),
                        group,
                    };
                    let mut out = Vec::new();
                    run_as(options, &env, &mut out).unwrap();
                    Outcome { printed: String::from_utf8(out).unwrap(), reports: read(&report) }
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn read(path: &Path) -> Vec<Report> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn diabetes_ends_at_the_least_squares_optimum_for_any_number_of_ranks() {
    for world in [1, 2, 3, 7] {
        let ranks = train(&options("diabetes"), world);
        let mse = ranks[0].last_metric();
        assert!((mse - 2859.6963).abs() < 0.05, "{world} ranks: {mse}");
        assert!(ranks[0].printed.contains("mse 2859.69") || ranks[0].printed.contains("mse 2859.70"));
        assert!(ranks.iter().all(|rank| rank.weights() == ranks[0].weights()), "{world} ranks differ");
    }
}

#[test]
fn digits_learns_and_ranks_stay_bit_equal_with_uneven_shares() {
    // 1,437 samples in batches of 50: the last has 37, and neither divides by three.
    let options = TrainOptions { epochs: Some(6), batch: Some(50), ..options("digits") };
    let alone = train(&options, 1);
    let three = train(&options, 3);
    assert!(alone[0].last_metric() > 0.8, "{}", alone[0].printed);
    assert!(three[0].last_metric() > 0.8, "{}", three[0].printed);
    assert!(three.iter().all(|rank| rank.weights() == three[0].weights()));
    // in two epochs there are a short batch and a second order of the samples
    let short = TrainOptions { epochs: Some(2), ..options };
    let three = train(&short, 3);
    assert_eq!(train(&short, 3)[0].weights(), three[0].weights(), "a run can be repeated bit for bit");
    let alone = train(&short, 1);
    let threads = TrainOptions { threads: Some(3), ..short.clone() };
    assert_eq!(train(&threads, 1)[0].weights(), alone[0].weights(), "threads don't change the result");
    let seed = TrainOptions { seed: 2, ..short };
    assert_ne!(train(&seed, 1)[0].weights(), alone[0].weights());
}

#[test]
fn ranks_of_two_hosts_share_memory_within_them_and_stay_bit_equal() {
    let options = TrainOptions { epochs: Some(2), ..options("digits") };
    let shm_domain = |rank| ["here", "here", "there", "there"][rank as usize];
    let ranks = train_on(&options, 4, shm_domain);
    assert!(ranks.iter().all(|rank| rank.printed.contains("transport shm+tcp")), "{}", ranks[0].printed);
    assert!(ranks.iter().all(|rank| rank.weights() == ranks[0].weights()));
    assert_eq!(
        train_on(&options, 4, shm_domain)[0].weights(),
        ranks[0].weights(),
        "a run can be repeated bit for bit"
    );
}

#[test]
fn every_step_reports_where_its_time_went() {
    let options = TrainOptions { epochs: Some(1), batch: Some(100), ..options("digits") };
    for (rank, outcome) in train(&options, 2).into_iter().enumerate() {
        // Once before the ranks meet, and again when the way of the bytes is known.
        let mut hellos = outcome.reports.iter().filter(|report| matches!(report, Report::Hello { .. }));
        assert!(matches!(hellos.next(), Some(Report::Hello { transport: None, .. })));
        let Some(Report::Hello { job, transport, total_steps, .. }) = hellos.next() else { panic!() };
        assert_eq!((job.as_str(), transport.as_deref(), *total_steps), ("digits", Some("shm"), Some(15)));
        assert!(outcome.reports.iter().any(|report| matches!(report, Report::Met { t: Some(_) })));
        let metrics = outcome.reports.iter().filter(|report| matches!(report, Report::Metric { .. })).count();
        assert_eq!(metrics, usize::from(rank == 0));
        let mut number = 0;
        let mut before = 0;
        for report in &outcome.reports {
            let Report::Step { step, t, dur_us, loss, samples, spans, .. } = report else { continue };
            number += 1;
            assert_eq!(*step, number);
            assert!(t.unwrap().0 >= before && loss.unwrap() > 0.0);
            before = t.unwrap().0 + u64::from(dur_us.unwrap());
            assert_eq!(*samples, Some(if number == 15 { [18, 19][rank] } else { 50 }));
            let phases: Vec<Phase> = spans.iter().map(|span| span.phase).collect();
            assert_eq!(
                phases,
                Phase::ALL.into_iter().filter(|phase| *phase != Phase::Other).collect::<Vec<_>>()
            );
            assert_eq!(spans.iter().map(|span| span.dur_us).sum::<u32>(), dur_us.unwrap());
        }
        assert_eq!(number, 15);
        let Report::Done { weights } = outcome.reports.last().unwrap() else { panic!() };
        assert_eq!(weights.as_deref(), Some(outcome.weights()));
    }
}

#[test]
fn more_ranks_than_samples_in_a_batch_is_fine() {
    let options = TrainOptions { epochs: Some(1), batch: Some(2), lr: Some(1e-3), ..options("diabetes") };
    let ranks = train(&options, 3);
    assert!(ranks.iter().all(|rank| rank.weights() == ranks[0].weights()));
}

#[test]
fn what_can_not_be_is_said_before_anything_starts() {
    let run = |options: &TrainOptions| {
        let env = RankEnv { rank: 0, world: 1, place: None, report: None, group: None };
        run_as(options, &env, &mut Vec::new()).unwrap_err()
    };
    let error = run(&options("mnits")).to_string();
    assert!(error.contains("'mnits'") && error.contains("digits") && error.contains("diabetes"), "{error}");
    for (options, flag) in [
        (TrainOptions { epochs: Some(0), ..options("digits") }, "--epochs"),
        (TrainOptions { batch: Some(0), ..options("digits") }, "--batch"),
        (TrainOptions { lr: Some(-1.0), ..options("digits") }, "--lr"),
        (TrainOptions { threads: Some(0), ..options("digits") }, "--threads"),
    ] {
        assert!(run(&options).to_string().starts_with(flag));
    }
    let wild = TrainOptions { lr: Some(1e6), ..options("diabetes") };
    assert!(matches!(run(&wild), WorkerError::Diverged { ref ranks, .. } if ranks[..] == [0]));
}

/// How long ranks wait for one that has stalled: enough for all to meet, however slow the machine is.
const WAIT: Duration = Duration::from_secs(10);

#[test]
fn a_rank_that_fails_with_its_group_leaves_its_last_operations_beside_its_report() {
    let (at, folder) = (own_loopback(), tempfile::tempdir().unwrap());
    let folder = folder.path();
    let over = &std::sync::Barrier::new(3);
    let errors: Vec<(String, String)> = std::thread::scope(|scope| {
        // Rank 2 joins, does the first three operations as all do (the plan, who has a GPU, rank 0's weights), and stalls.
        let ranks: Vec<_> = (0..2)
            .map(|rank| {
                scope.spawn(move || {
                    let env = RankEnv {
                        rank,
                        world: 3,
                        place: None,
                        report: Some(folder.join(format!("rank-{rank}.report"))),
                        group: Some(config(at, rank, 3, WAIT)),
                    };
                    let mut out = Vec::new();
                    // Whatever happens, nothing waits for a rank that has panicked.
                    let ended = run_as(&options("diabetes"), &env, &mut out);
                    over.wait();
                    let error = ended.unwrap_err().to_string();
                    (error, String::from_utf8(out).unwrap())
                })
            })
            .collect();
        let stalled = Group::connect(config(at, 2, 3, WAIT), &mut |_| {}).and_then(|mut group| {
            group.broadcast(0, &mut [0_i64; 6])?;
            group.allgather(&mut [0_i32; 3])?;
            // The job's parameters: ten weights and an offset.
            group.broadcast(0, &mut [0.0_f32; 11])?;
            Ok(group)
        });
        over.wait();
        stalled.unwrap();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    for (rank, (error, printed)) in errors.iter().enumerate() {
        assert!(
            error.contains("allreduce #4") && error.contains("rank 2 did not take part within 10 s"),
            "{error}"
        );
        let path = folder.join(format!("rank-{rank}.report.flight"));
        assert!(printed.contains(path.to_str().unwrap()), "{printed}");
        let table = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], format!("rank {rank} of 3: {error}"));
        assert!(lines[5].ends_with("broadcast #3 of 11 f32 values from rank 0"), "{table}");
        assert!(
            lines[6].contains("allreduce #4") && lines[6].ends_with("<- waits for other ranks"),
            "{table}"
        );
        // It was entered two seconds ago, which is a figure in microseconds of the host's clock.
        let ago: u64 = lines[6].split_whitespace().next().unwrap().parse().unwrap();
        assert!((10_000_000..60_000_000).contains(&ago), "{table}");
    }
}

/// The parameters' bits after the last step, from a checkpoint.
fn checkpointed(options: &TrainOptions, world: u32, path: &Path) -> (Vec<Outcome>, Vec<f32>) {
    let options = TrainOptions { checkpoint: Some(path.to_owned()), ..options.clone() };
    let ranks = train(&options, world);
    let bytes = std::fs::read(path).unwrap();
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    let head: serde_json::Value = serde_json::from_slice(&bytes[..end]).unwrap();
    let params = head["params"].as_u64().unwrap() as usize;
    let values = bytes[end + 1..].chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    (ranks, values.take(params).collect())
}

#[test]
fn any_number_of_ranks_learns_the_same_from_the_same_batches() {
    // 1,437 samples in batches of 50: two ranks, three and four all get uneven shares in the last one.
    let options = TrainOptions { epochs: Some(1), batch: Some(50), ..options("digits") };
    let folder = tempfile::tempdir().unwrap();
    let runs: Vec<Vec<f32>> = (1..=4)
        .map(|world| checkpointed(&options, world, &folder.path().join(world.to_string())).1)
        .collect();
    let norm =
        |values: &mut dyn Iterator<Item = f32>| values.map(|v| f64::from(v).powi(2)).sum::<f64>().sqrt();
    let length = norm(&mut runs[0].iter().copied());
    for (world, run) in (2..).zip(&runs[1..]) {
        let off = norm(&mut run.iter().zip(&runs[0]).map(|(a, b)| a - b)) / length;
        assert!(off < 1e-4, "{world} ranks end {off} off");
    }
}

#[test]
fn buckets_and_overlap_do_not_change_a_bit_and_overlap_is_told() {
    let plain = TrainOptions { epochs: Some(1), batch: Some(200), ..options("digits") };
    let together = train(&plain, 2);
    let buckets = TrainOptions { bucket: Some(1), ..plain.clone() };
    let early = train(&buckets, 2);
    let late = train(&TrainOptions { no_overlap: true, ..buckets.clone() }, 2);
    assert_eq!(early[0].weights(), late[0].weights());
    assert_eq!(early[0].weights(), together[0].weights());
    // one step may lose its processor between two looks at the clock
    let hidden = |ranks: &[Outcome], of: fn(&[u32]) -> u32| -> u32 {
        let told = |report: &Report| match report {
            Report::Step { hidden_us, .. } => *hidden_us,
            _ => None,
        };
        let mut steps: Vec<u32> = ranks.iter().flat_map(|rank| &rank.reports).filter_map(told).collect();
        steps.sort_unstable();
        of(&steps)
    };
    // Without overlap all that an operation takes passes while the rank stands still, but for the last microsecond.
    // With it a rank may get its processor late, as often as not: what it can hide is seen in some step.
    let (early, late) =
        (hidden(&early, |steps| steps[steps.len() - 1]), hidden(&late, |steps| steps[steps.len() / 2]));
    assert!(early > 5 && late <= 5, "{early} {late}");
}

#[test]
fn gradients_of_half_the_bytes_teach_as_well() {
    let options = TrainOptions { epochs: Some(6), batch: Some(50), half: true, ..options("digits") };
    let ranks = train(&options, 2);
    assert!(ranks[0].last_metric() > 0.8, "{}", ranks[0].printed);
    assert_eq!(ranks[0].weights(), ranks[1].weights());
    let whole = train(&TrainOptions { half: false, ..options }, 2);
    assert_ne!(ranks[0].weights(), whole[0].weights());
}

#[test]
fn training_that_goes_on_from_a_checkpoint_ends_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.checkpoint");
    for job in ["digits", "diabetes"] {
        let three = TrainOptions { epochs: Some(3), batch: Some(100), ..options(job) };
        let through = train(&three, 2);
        let first = TrainOptions {
            epochs: Some(1),
            checkpoint: Some(path.clone()),
            checkpoint_every: Some(2),
            resume: true,
            ..three.clone()
        };
        let begun = train(&first, 2);
        assert!(begun[0].printed.contains("no checkpoint") && !begun[1].printed.contains("no checkpoint"));
        let rest = TrainOptions { epochs: Some(3), ..first.clone() };
        let ended = train(&rest, 2);
        assert!(ended[0].printed.contains("goes on from checkpoint"), "{}", ended[0].printed);
        assert_eq!(ended[0].weights(), through[0].weights(), "{job}");
        assert_eq!(ended[1].weights(), through[0].weights(), "{job}");
        let nothing_left = train(&rest, 2);
        assert!(nothing_left[0].printed.contains("nothing is left to train"));
        assert_eq!(nothing_left[1].weights(), through[0].weights());
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_checkpoint_of_another_training_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    let run = |options: &TrainOptions| {
        let env = RankEnv { rank: 0, world: 1, place: None, report: None, group: None };
        run_as(options, &env, &mut Vec::new())
    };
    let base = TrainOptions { epochs: Some(1), checkpoint: Some(path.clone()), ..options("diabetes") };
    run(&base).unwrap();
    let kept = std::fs::read(&path).unwrap();
    let resumed = TrainOptions { resume: true, ..base.clone() };
    for (options, words) in [
        (base.clone(), "--resume"),
        (TrainOptions { seed: 9, ..resumed.clone() }, "--seed 9"),
        (TrainOptions { batch: Some(7), ..resumed.clone() }, "--batch 7"),
        (TrainOptions { job: "digits".to_owned(), ..resumed.clone() }, "is of diabetes, and this is digits"),
    ] {
        let error = run(&options).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()) && error.contains(words), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), kept);
    }
    std::fs::write(&path, &kept[..kept.len() - 3]).unwrap();
    let error = run(&resumed).unwrap_err().to_string();
    assert!(error.contains(path.to_str().unwrap()) && error.contains("bytes long"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap().len(), kept.len() - 3, "nothing is overwritten");
    for lone in [
        TrainOptions { checkpoint: None, ..resumed },
        TrainOptions { checkpoint: None, checkpoint_every: Some(3), ..base },
    ] {
        assert!(run(&lone).unwrap_err().to_string().contains("--checkpoint FILE"));
    }
}

#[test]
fn a_loss_that_is_no_number_names_step_and_rank_and_keeps_the_last_good_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    // One epoch is learned well; then the rate is a wild one.
    let good = TrainOptions { epochs: Some(1), checkpoint: Some(path.clone()), ..options("diabetes") };
    train(&good, 1);
    let kept = std::fs::read(&path).unwrap();
    let wild = TrainOptions { epochs: Some(500), lr: Some(1e9), resume: true, ..good };
    let env = RankEnv { rank: 0, world: 1, place: None, report: None, group: None };
    let error = run_as(&wild, &env, &mut Vec::new()).unwrap_err();
    let WorkerError::Diverged { ranks, step, .. } = &error else { panic!("{error}") };
    assert!(ranks[..] == [0] && *step > 1, "{error}");
    assert!(error.to_string().contains("the loss of rank 0 is"), "{error}");
    // What is there is a later one of whose numbers each is one, or the first.
    let now = std::fs::read(&path).unwrap();
    assert_eq!(now.len(), kept.len());
    let end = now.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let values = now[end..].chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    assert!(values.take(11).all(f32::is_finite));
}

#[test]
fn ranks_with_nothing_to_do_are_told() {
    let options = TrainOptions { epochs: Some(1), batch: Some(2), lr: Some(1e-3), ..options("diabetes") };
    let printed = &train(&options, 3)[0].printed;
    assert!(
        printed.contains("a batch of 2 for 3 ranks: in each step 1 of them have nothing to do"),
        "{printed}"
    );
}

#[test]
fn a_rank_killed_in_the_middle_of_an_epoch_goes_on_from_its_last_step_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    // more than it will do before it is killed
    let words = "train digits --seed 1 --epochs 1000000 --batch 20 --checkpoint-every 1";
    let mut child = std::process::Command::new(crate::common::program::hvtui())
        .args(words.split(' '))
        .arg("--checkpoint")
        .arg(&path)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // The file is whole whenever it is read.
    let step = || {
        let bytes = std::fs::read(&path).ok()?;
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let head: serde_json::Value = serde_json::from_slice(&bytes[..end]).ok()?;
        head["position"]["step"].as_u64()
    };
    while step().is_none_or(|step| step < 5) {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be killed");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // an epoch has 72 steps: to the end of the next one
    let epochs = u32::try_from(step().unwrap() / 72 + 2).unwrap();
    let options = TrainOptions { epochs: Some(epochs), batch: Some(20), ..options("digits") };
    let resumed = TrainOptions { checkpoint: Some(path.clone()), resume: true, ..options.clone() };
    let ended = train(&resumed, 1);
    assert!(ended[0].printed.contains("goes on from checkpoint"), "{}", ended[0].printed);
    assert_eq!(ended[0].weights(), train(&options, 1)[0].weights());
}

#[test]
fn a_full_disk_ends_no_training_and_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    let run = |epochs, out: &mut Vec<u8>| {
        // What is written beside the checkpoint's place meets a device without room, once: what failed is taken away.
        std::os::unix::fs::symlink("/dev/full", folder.path().join("model.new")).unwrap();
        let options = TrainOptions {
            epochs: Some(epochs),
            checkpoint: Some(path.clone()),
            resume: true,
            ..options("diabetes")
        };
        let env = RankEnv { rank: 0, world: 1, place: None, report: None, group: None };
        run_as(&options, &env, out)
    };
    let mut printed = Vec::new();
    run(2, &mut printed).unwrap();
    let text = String::from_utf8(std::mem::take(&mut printed)).unwrap();
    assert!(text.contains("step 1: checkpoint") && text.contains("training goes on"), "{text}");
    let kept = std::fs::read(&path).unwrap();
    // Nothing comes after the one that can't be written: the rank ends with the error, and what was there is kept.
    let error = run(3, &mut printed).unwrap_err().to_string();
    assert!(error.contains(path.to_str().unwrap()) && error.contains("No space left"), "{error}");
    assert!(String::from_utf8(printed).unwrap().contains("weights sha256"), "it was trained to the end");
    assert_eq!(std::fs::read(&path).unwrap(), kept);
}

#[test]
fn ranks_that_were_told_different_things_say_which() {
    let at = own_loopback();
    let errors: Vec<WorkerError> = std::thread::scope(|scope| {
        let ranks: Vec<_> = [(0, 32), (1, 64)]
            .into_iter()
            .map(|(rank, batch)| {
                scope.spawn(move || {
                    let group = Some(config(at, rank, 2, Duration::from_secs(60)));
                    let env = RankEnv { rank, world: 2, place: None, report: None, group };
                    let options = TrainOptions { batch: Some(batch), epochs: Some(1), ..options("digits") };
                    run_as(&options, &env, &mut Vec::new()).unwrap_err()
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    assert_eq!(
        errors[1].to_string(),
        "rank 1 has --batch 64, and rank 0 has 32: give all ranks the same, and the same data"
    );
    assert!(matches!(&errors[0], WorkerError::Collective(error) if error.to_string().contains("rank 1")));
}

#[test]
fn a_parameter_that_is_no_number_ends_training_though_no_loss_has_shown_it() {
    let wild = TrainOptions { epochs: Some(1), lr: Some(1e38), ..options("diabetes") };
    let env = RankEnv { rank: 0, world: 1, place: None, report: None, group: None };
    let error = run_as(&wild, &env, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, WorkerError::NotFinite { step: 1 }), "{error}");
}

#[test]
fn half_width_gradients_of_a_batch_greater_than_the_data_still_teach() {
    let options =
        TrainOptions { epochs: Some(40), batch: Some(1_000_000_000), half: true, ..options("digits") };
    let ranks = train(&options, 2);
    assert!(ranks[0].last_metric() > 0.3, "{}", ranks[0].printed);
}

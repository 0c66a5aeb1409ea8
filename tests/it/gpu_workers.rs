//! Jobs on GPUs, through the program and the real loading path: on the scripted driver, which runs our kernels on this processor.
//!
//! What that proves and what not: docs/decisions/gpu-workers.md.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::in_time::OutputInTime;
use crate::common::processes::{end_of, until};
use crate::common::scripted_gpu::{LIBRARIES, ScriptedGpu};
use hvtui::domain::report::Report;
use hvtui::domain::timing::StepTiming;

/// A secret of this group's own: memory is shared under a name that follows from it.
fn secret() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("{:032x}{:032x}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn hvtui() -> &'static Path {
    Path::new(crate::common::program::hvtui())
}

/// What a rank left.
struct Rank {
    output: Output,
    report: PathBuf,
}

impl Rank {
    fn out(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    fn err(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    fn ok(&self) -> String {
        assert!(self.output.status.success(), "{}\n{}", self.out(), self.err());
        self.out()
    }

    /// What it says when it fails at its work.
    fn failed(&self) -> String {
        assert_eq!(self.output.status.code(), Some(1), "{}\n{}", self.out(), self.err());
        self.err()
    }

    fn weights(&self) -> String {
        self.ok().lines().last().unwrap().strip_prefix("weights sha256 ").unwrap().to_owned()
    }

    fn reports(&self) -> Vec<Report> {
        let text = std::fs::read_to_string(&self.report).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A run of `hvtui train`.
struct Run<'a> {
    gpu: Option<&'a ScriptedGpu>,
    folder: tempfile::TempDir,
    args: Vec<String>,
    script: Vec<(&'a str, &'a str)>,
}

impl<'a> Run<'a> {
    fn new(gpu: Option<&'a ScriptedGpu>, args: &str) -> Self {
        let args = args.split_whitespace().map(str::to_owned).collect();
        Self { gpu, folder: tempfile::tempdir().unwrap(), args, script: Vec::new() }
    }

    fn script(mut self, name: &'a str, value: &'a str) -> Self {
        self.script.push((name, value));
        self
    }

    fn checkpoint(&self) -> PathBuf {
        self.folder.path().join("model")
    }

    fn command(&self, rank: usize) -> (Command, PathBuf) {
        let report = self.folder.path().join(format!("report-{rank}"));
        let mut command = Command::new(hvtui());
        command.arg("train").args(&self.args).stdout(Stdio::piped()).stderr(Stdio::piped());
        for name in
            ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "HVTUI_PLACE", "CUDA_VISIBLE_DEVICES"]
        {
            command.env_remove(name);
        }
        command.env("HVTUI_REPORT", &report);
        if let Some(gpu) = self.gpu {
            gpu.show(&mut command);
        }
        command.envs(self.script.iter().copied());
        (command, report)
    }

    /// One rank.
    fn alone(&self) -> Rank {
        let (mut command, report) = self.command(0);
        command.arg("--checkpoint").arg(self.checkpoint());
        Rank { output: command.output_in_time().unwrap(), report }
    }

    /// Several, of this host; `own` adds what sets a rank apart.
    fn ranks(&self, world: usize, own: impl Fn(usize, &mut Command)) -> Vec<Rank> {
        let ended =
            |(child, report): (Child, PathBuf)| Rank { output: child.output_in_time().unwrap(), report };
        self.start(world, own).into_iter().map(ended).collect()
    }

    fn start(&self, world: usize, own: impl Fn(usize, &mut Command)) -> Vec<(Child, PathBuf)> {
        // The port is free again before rank 0 takes it; nothing else takes ports by number here.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let secret = secret();
        let start = |rank: usize| {
            let (mut command, report) = self.command(rank);
            command
                .arg("--checkpoint")
                .arg(self.checkpoint())
                .env("RANK", rank.to_string())
                .env("WORLD_SIZE", world.to_string())
                .env("MASTER_ADDR", "127.0.0.1")
                .env("MASTER_PORT", port.to_string())
                .env("HVTUI_SECRET", &secret)
                .env("HVTUI_BIND", "127.0.0.1")
                .env("HVTUI_TIMEOUT_S", "120");
            own(rank, &mut command);
            (command.spawn().unwrap(), report)
        };
        (0..world).map(start).collect()
    }

    /// The parameters that rank 0 kept.
    fn params(&self) -> Vec<f32> {
        let bytes = std::fs::read(self.checkpoint()).unwrap();
        let end = bytes.iter().position(|byte| *byte == b'\n').unwrap();
        let head: serde_json::Value = serde_json::from_slice(&bytes[..end]).unwrap();
        let count = head["params"].as_u64().unwrap() as usize;
        let (values, _) = bytes[end + 1..].as_chunks::<4>();
        values[..count].iter().map(|value| f32::from_le_bytes(*value)).collect()
    }
}

/// The difference of two models, as a share of their size.
fn apart(one: &[f32], two: &[f32]) -> f64 {
    let norm =
        |values: &mut dyn Iterator<Item = f32>| values.map(|v| f64::from(v).powi(2)).sum::<f64>().sqrt();
    assert_eq!(one.len(), two.len());
    norm(&mut one.iter().zip(two).map(|(a, b)| a - b)) / norm(&mut one.iter().copied())
}

fn steps(reports: &[Report]) -> Vec<StepTiming> {
    let step = |report: &Report| match report {
        Report::Step { step, t, dur_us, loss, samples, spans, hidden_us } => Some(StepTiming {
            step: *step,
            start: (*t)?,
            dur_us: (*dur_us)?,
            loss: *loss,
            samples: (*samples)?,
            spans: spans.clone().into(),
            hidden_us: (*hidden_us)?,
        }),
        _ => None,
    };
    reports.iter().filter_map(step).collect()
}

#[test]
fn a_rank_on_a_gpu_trains_as_one_on_the_cpu() {
    const JOB: &str = "digits --epochs 1 --batch 240 --seed 1";
    let cpu = Run::new(None, &format!("{JOB} --device cpu"));
    let cpu_rank = cpu.alone();
    for (libraries, names) in [("cuBLAS 12.1.3", &LIBRARIES[..]), ("without cuBLAS", &LIBRARIES[..1])] {
        let gpu = ScriptedGpu::new(names);
        let on_gpu = Run::new(Some(&gpu), JOB);
        let rank = on_gpu.alone();
        let out = rank.ok();
        assert!(out.starts_with("rank 0 trains on Scripted GPU, ") && out.contains(libraries), "{out}");
        assert!(out.contains("digits rank 0 of 1 transport none parameters"), "{out}");
        let apart = apart(&on_gpu.params(), &cpu.params());
        println!("{libraries}: after 6 steps {apart:.1e} apart");
        assert!(apart < 1e-4, "{apart}");
        let (timings, expected) = (steps(&rank.reports()), steps(&cpu_rank.reports()));
        assert_eq!((timings.len(), expected.len()), (6, 6));
        for (own, cpu) in timings.iter().zip(&expected) {
            assert_eq!((own.step, own.samples), (cpu.step, cpu.samples));
            let (own_loss, cpu_loss) = (own.loss.unwrap(), cpu.loss.unwrap());
            assert!((own_loss - cpu_loss).abs() < 1e-3 * cpu_loss, "{own_loss} {cpu_loss}");
            // Phases make up the step, and steps of an epoch follow each other.
            assert_eq!(own.phase_totals().iter().sum::<u64>(), u64::from(own.dur_us), "{own:?}");
            let at = |phase: &hvtui::domain::timing::Phase| own.phase_totals()[phase.index()];
            assert!(
                hvtui::domain::timing::Phase::ALL.iter().filter(|phase| at(phase) > 0).count() >= 3,
                "{own:?}"
            );
        }
    }
}

#[test]
fn two_ranks_on_one_card_end_as_two_on_the_cpu() {
    // 1,437 samples: the last batch has one, and a rank none.
    for more in ["--bucket 10K", "--fp16-allreduce --no-overlap"] {
        let job = format!("digits --epochs 1 --batch 359 --seed 4 {more}");
        let gpu = ScriptedGpu::new(&LIBRARIES);
        let cpu = Run::new(None, &format!("{job} --device cpu"));
        let cpu_ranks = cpu.ranks(2, |_, _| ());
        assert_eq!(cpu_ranks[0].weights(), cpu_ranks[1].weights());
        let on_gpu = Run::new(Some(&gpu), &format!("{job} --device gpu"));
        let ranks = on_gpu.ranks(2, |_, _| ());
        let out = ranks[0].ok();
        assert!(out.contains("; staged through the host's memory: ranks 0 and 1 share a GPU"), "{out}");
        assert!(out.contains(" transport shm "), "{out}");
        assert_eq!(ranks[0].weights(), ranks[1].weights(), "{more}");
        let apart = apart(&on_gpu.params(), &cpu.params());
        println!("'{more}': after 5 steps {apart:.1e} apart");
        assert!(apart < if more.contains("fp16") { 1e-2 } else { 1e-4 }, "{more}: {apart}");
        let timings = steps(&ranks[1].reports());
        assert_eq!(timings.len(), 5);
        let shares = |rank: &Rank| steps(&rank.reports()).iter().map(|step| step.samples).sum::<u32>();
        assert_eq!(ranks.iter().map(shares).sum::<u32>(), 1437);
    }
}

#[test]
fn the_synthetic_job_sums_what_it_must() {
    let gpu = ScriptedGpu::new(&LIBRARIES);
    for more in ["", "--fp16-allreduce --bucket 64K"] {
        let run = Run::new(
            Some(&gpu),
            &format!("synthetic --gradient 1M --compute 3ms --steps 4 --device gpu {more}"),
        );
        let alone = run.alone();
        assert!(alone.ok().contains(" wrong 0.0000 "), "{}", alone.out());
        let run = Run::new(Some(&gpu), &run.args.join(" "));
        let ranks = run.ranks(2, |_, _| ());
        assert!(ranks[0].ok().contains(" wrong 0.0000 "), "{}", ranks[0].out());
        assert_eq!(ranks[0].weights(), ranks[1].weights());
        for step in steps(&ranks[0].reports()) {
            assert_eq!(step.phase_totals().iter().sum::<u64>(), u64::from(step.dur_us));
        }
    }
}

#[test]
fn ranks_with_a_card_each_go_by_nccl() {
    const JOB: &str = "digits --epochs 1 --batch 480";
    let gpu = ScriptedGpu::new(&LIBRARIES);
    let meet = tempfile::tempdir().unwrap();
    let run = Run::new(Some(&gpu), &format!("{JOB} --device gpu"))
        .script("FAKE_NCCL_MEET", meet.path().to_str().unwrap());
    let ranks = run.ranks(2, |rank, command| {
        command.env("LOCAL_RANK", rank.to_string()).env("LOCAL_WORLD_SIZE", "2");
    });
    for rank in &ranks {
        assert!(rank.ok().contains(" transport nccl "), "{}", rank.out());
        let told = rank.reports().into_iter().rev().find_map(|report| match report {
            Report::Hello { transport, .. } => Some(transport),
            _ => None,
        });
        assert_eq!(told, Some(Some("nccl".to_owned())));
        assert_eq!(steps(&rank.reports()).len(), 3);
    }
    assert_eq!(ranks[0].weights(), ranks[1].weights());
    let cpu = Run::new(None, &format!("{JOB} --device cpu"));
    cpu.ranks(2, |_, _| ())[0].ok();
    let apart = apart(&run.params(), &cpu.params());
    println!("by NCCL: after 3 steps {apart:.1e} apart");
    assert!(apart < 1e-4, "{apart}");
    let lines = gpu.lines();
    assert!(!lines.iter().any(|line| line.contains("early") || line.starts_with("abort")), "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("destroy")).count(), 2, "both left in order");
}

#[test]
fn all_ranks_train_on_gpus_or_none() {
    let gpu = ScriptedGpu::new(&LIBRARIES);
    let job = "digits --epochs 1 --batch 480";
    let without = |rank: usize, command: &mut Command| {
        if rank == 1 {
            command.env("FAKE_CUDA_COUNT", "0");
        }
    };
    let ranks = Run::new(Some(&gpu), job).ranks(2, without);
    assert!(ranks[0].ok().starts_with("rank 0 trains on the CPU: rank 1 has no GPU; its log says why\n"));
    assert!(
        ranks[1].ok().starts_with("digits rank 1 of 2"),
        "no GPU is nothing to speak of: {}",
        ranks[1].out()
    );
    assert_eq!(ranks[0].weights(), ranks[1].weights());
    let ranks = Run::new(Some(&gpu), &format!("{job} --device gpu")).ranks(2, without);
    assert!(ranks[0].failed().contains("rank 0: --device gpu: rank 1 has none"), "{}", ranks[0].err());
    let why = ranks[1].failed();
    assert!(
        why.contains("rank 1: --device gpu: the driver sees no GPU; CUDA_VISIBLE_DEVICES is not set"),
        "{why}"
    );
}

#[test]
fn what_a_host_lacks_is_told_or_does_not_matter() {
    let gpu = ScriptedGpu::new(&LIBRARIES);
    let job = "digits --epochs 1 --batch 480";
    let old = |args: &str| Run::new(Some(&gpu), args).script("FAKE_CUDA_VERSION", "11040").alone();
    let out = old(job).ok();
    assert!(
        out.starts_with(
            "rank 0 trains on the CPU: the driver knows CUDA 11.4, and hvtui's kernels need 12.0"
        ),
        "{out}"
    );
    let err = old(&format!("{job} --device gpu")).failed();
    assert!(err.contains("rank 0: --device gpu: the driver knows CUDA 11.4"), "{err}");
    let out = Run::new(Some(&gpu), job).script("FAKE_CUDA_PTX", "refused").alone().ok();
    assert!(out.starts_with("rank 0 trains on the CPU: CUDA: load our kernels: "), "{out}");
    let err = Run::new(Some(&gpu), &format!("{job} --device gpu"))
        .script("FAKE_CUDA_CAPABILITY", "6")
        .alone()
        .failed();
    assert!(err.contains("compute capability 6.0"), "{err}");
    // A job that no GPU knows.
    let rank = Run::new(Some(&gpu), "diabetes --epochs 1 --device gpu").alone();
    assert_eq!(rank.output.status.code(), Some(64), "{}", rank.err());
    assert!(rank.err().contains("--device must be auto or cpu for this job"), "{}", rank.err());
    assert!(Run::new(Some(&gpu), "diabetes --epochs 1").alone().ok().starts_with("diabetes rank 0"));
}

#[test]
fn a_host_without_a_driver_says_so() {
    // On a machine with a GPU this is that GPU's.
    let rank = Run::new(None, "digits --epochs 1 --batch 480 --device gpu")
        .script("CUDA_VISIBLE_DEVICES", "")
        .alone();
    let err = rank.failed();
    let known = ["no NVIDIA driver (libcuda.so.1)", "the driver sees no GPU", "open the GPU", "knows CUDA"];
    assert!(err.contains("rank 0: --device gpu: ") && known.iter().any(|text| err.contains(text)), "{err}");
}

/// The checks for a real GPU end at once, and say why.
#[test]
fn the_checks_of_a_real_gpu_need_one() {
    let checks = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpu/run");
    let ran = Command::new(checks).arg(hvtui()).env("CUDA_VISIBLE_DEVICES", "").output_in_time().unwrap();
    let out = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(ran.status.code(), Some(77), "{out}");
    assert!(out.starts_with("no GPU to test with:\n  hvtui: rank 0: --device gpu: "), "{out}");
}

#[test]
fn a_batch_without_room_is_told_what_fits() {
    let gpu = ScriptedGpu::new(&LIBRARIES);
    let run = |args: &str| Run::new(Some(&gpu), args).script("FAKE_CUDA_MEMORY", "40000000").alone();
    let err = run("digits --epochs 1 --batch 1400").failed();
    assert!(err.contains("the GPU has 38 M free of 38 M, and a batch of 1400 on this rank wants "), "{err}");
    let (_, fits) = err.trim().rsplit_once("a batch of ").unwrap();
    let fits: usize = fits.strip_suffix(" fits").unwrap().parse().unwrap();
    assert!((100..1000).contains(&fits), "{err}");
    run(&format!("digits --epochs 1 --batch {fits}")).ok();
}

#[test]
fn a_run_that_diverges_names_step_and_rank() {
    let gpu = ScriptedGpu::new(&LIBRARIES);
    let err = Run::new(Some(&gpu), "digits --epochs 1 --batch 480 --lr 3e38 --device gpu").alone().failed();
    assert!(
        err.contains("the loss of rank 0 is NaN at step 2") || err.contains("at step 2; a smaller --lr"),
        "{err}"
    );
}

#[test]
fn a_rank_that_dies_ends_the_other_on_its_card() {
    let gpu = ScriptedGpu::new(&LIBRARIES);
    let run = Run::new(Some(&gpu), "digits --epochs 4000 --device gpu");
    let mut ranks = run.start(2, |_, _| ());
    let (mut dies, _) = ranks.pop().unwrap();
    let (lives, report) = ranks.pop().unwrap();
    let under_way = || std::fs::read_to_string(&report).is_ok_and(|text| text.lines().count() > 20);
    until("20 lines in the report of rank 0", under_way);
    dies.kill().unwrap();
    end_of(&mut dies);
    let rank = Rank { output: lives.output_in_time().unwrap(), report };
    assert!(rank.failed().contains("rank 1 is gone"), "{}", rank.err());
}

#[test]
fn a_checkpoint_of_a_gpu_goes_on_bit_for_bit() {
    let gpu = ScriptedGpu::new(&LIBRARIES);
    let whole = Run::new(Some(&gpu), "digits --epochs 2 --batch 480 --device gpu");
    let expected = whole.alone().weights();
    let mut parts = Run::new(Some(&gpu), "digits --epochs 1 --batch 480 --device gpu");
    parts.alone().ok();
    parts.args =
        "digits --epochs 2 --batch 480 --device gpu --resume".split(' ').map(str::to_owned).collect();
    let rank = parts.alone();
    assert!(rank.ok().contains("goes on from checkpoint"), "{}", rank.out());
    assert_eq!(rank.weights(), expected);
    // And on the CPU.
    parts.args =
        "digits --epochs 3 --batch 480 --device cpu --resume".split(' ').map(str::to_owned).collect();
    assert!(parts.alone().ok().contains("goes on from checkpoint"));
}

//! A look into an image: checks that are made by a process of hvtui's in a container of it, by the same code as on the host. What
//! starts the container is not its business.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::checks::image;
use super::{NOTHING_GIVEN, OfImage, PATIENCE, Seen, Site, Told, check};
use crate::clock;
use crate::domain::doctor::{Fix, Matrix, Started};
use crate::domain::host::HostInfo;
use crate::domain::ids::{GpuUuid, HostId};
use crate::domain::time::Stamp;

/// What stands before the name of a check that is made in a container.
const BEFORE: &str = "image:";

/// What the process in the container is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The client's clock.
    pub at: Stamp,
    /// The checks, by their own names.
    pub checks: Vec<String>,
    /// Python modules that are looked for.
    pub modules: Vec<String>,
    /// What a launch starts.
    #[serde(default)]
    pub starts: Option<Started>,
    /// What the image is.
    pub image: String,
    /// Of a launch: after how long what has been told so far is the answer, milliseconds.
    #[serde(default)]
    pub patience_ms: Option<u64>,
}

/// What it answers, by check.
pub type Answers = BTreeMap<String, Told>;

/// The name by which a host is asked for a check in a container.
pub(super) fn name(check: &str) -> String {
    format!("{BEFORE}{check}")
}

/// The check that is asked for by such a name.
pub fn asked(name: &str) -> Option<&str> {
    name.strip_prefix(BEFORE)
}

/// Makes the checks here, in the container. Each has a thread of its own: what hangs ends with the process.
pub fn look(ask: Ask) -> Answers {
    let Ask { at, checks, modules, starts, image, patience_ms } = ask;
    let site = Site::new(at, clock::now(), std::env::temp_dir(), Vec::new());
    let site = site.with_modules(modules).starting(starts).for_launch(patience_ms.is_some());
    let site = Arc::new(site.in_container(image));
    let begun = clock::host_now().0;
    let patience = patience_ms.map_or(PATIENCE, Duration::from_millis);
    let late = format!("no answer in {:.1} s in the container", patience.as_secs_f64());
    let mut answers: Answers = checks.iter().map(|name| (name.clone(), Err(late.clone()))).collect();
    let (tell, told) = mpsc::channel();
    for name in checks {
        let (site, tell) = (Arc::clone(&site), tell.clone());
        let body = move || {
            let unknown = || Err("its hvtui does not know this check: use the same version there".to_owned());
            let found = check(&name).map_or_else(unknown, |entry| entry.look(&site));
            // the others may be waited for no more
            let _ = tell.send((name, found));
        };
        // one that can't be begun is late
        let _ = thread::Builder::new().spawn(body);
    }
    drop(tell);
    loop {
        let gone = Duration::from_micros(clock::host_now().0.saturating_sub(begun));
        match told.recv_timeout(patience.saturating_sub(gone)) {
            Ok((name, found)) => answers.insert(name, found),
            Err(_) => return answers,
        };
    }
}

/// By what the ranks of launches by Horovod may agree.
const CONTROLLERS: [Option<&str>; 3] = [None, Some("gloo"), Some("mpi")];

/// Whether nothing of what was told is any trouble to a launch with these GPUs, whatever its ranks agree by.
pub fn is_well(answers: &Answers, info: &HostInfo, gpus: &BTreeSet<GpuUuid>) -> bool {
    let here = HostId::from("here");
    answers.iter().all(|(name, told)| {
        let (Some(entry), Ok(found)) = (check(name), told) else { return true };
        CONTROLLERS.into_iter().all(|controller| {
            let (host, given, uses) = (&here, &NOTHING_GIVEN, Some(gpus));
            let (sample, clock, happened) = (None, None, None);
            let seen = Seen { host, info, sample, given, uses, controller, clock, happened, found };
            (entry.judge)(&[seen]).iter().all(|verdict| !verdict.is_trouble())
        })
    })
}

/// What the check of the image itself finds where no container of it can be had: why, and what helps where that is known.
pub fn refused(why: String, remedy: Option<String>) -> Value {
    serde_json::to_value(image::Found::Refused { why, remedy }).unwrap_or_default()
}

/// The verdicts of a look into an image: what helps is done in the image, by none of the host's commands.
pub fn of_image(mut matrix: Matrix) -> Matrix {
    for row in &mut matrix.rows {
        let is_inside = check(row.check).is_some_and(|entry| entry.of_image == OfImage::Inside);
        for verdict in row.verdicts.values_mut().filter(|_| is_inside) {
            verdict.fix = verdict.fix.take().filter(|fix| matches!(fix, Fix::Here(_)));
            if let Some(remedy) = &mut verdict.remedy {
                // the driver is the host's
                if !remedy.contains("newer driver") {
                    *remedy = format!("in the image: {}", remedy.replace("sudo ", ""));
                }
            }
        }
    }
    matrix
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::seen;
    use crate::domain::doctor::{Row, Verdict};
    use crate::domain::gpu::{GpuInfo, Reading};

    #[test]
    fn what_is_asked_is_answered_and_what_is_not_known_says_so() {
        let checks = ["shm", "image", "nonsense"].map(str::to_owned).to_vec();
        let (modules, image) = (Vec::new(), "0123".to_owned());
        let ask = Ask { at: Stamp(1), checks, modules, starts: None, image, patience_ms: None };
        let text = serde_json::to_string(&ask).unwrap();
        let answers = look(serde_json::from_str(&text).unwrap());
        let text = serde_json::to_string(&answers).unwrap();
        let answers: Answers = serde_json::from_str(&text).unwrap();
        assert!(answers["shm"].is_ok() && answers["image"].is_ok(), "{answers:?}");
        assert!(answers["nonsense"].as_ref().unwrap_err().contains("does not know this check"));
        assert_eq!((asked("image:shm"), asked("shm")), (Some("shm"), None));
    }

    #[test]
    fn what_is_red_or_yellow_is_not_well() {
        let mut info = seen([()])[0].info.clone();
        info.gpus = vec![GpuInfo { uuid: GpuUuid::from("GPU-1"), ..GpuInfo::unknown(0) }];
        info.cuda_driver = Reading::Value("12.2".to_owned());
        let is_well = |check: &str, found: serde_json::Value| {
            let answers = Answers::from([(check.to_owned(), Ok(found))]);
            super::is_well(&answers, &info, &[GpuUuid::from("GPU-1")].into())
        };
        let image = |gpu: &str, lacks: serde_json::Value| {
            let has = serde_json::json!({"Ok": [gpu]});
            serde_json::json!({"container": {"id": "1", "system": null, "programs": [], "gpus": has, "reads_memory": true, "lacks": lacks}})
        };
        let lack = serde_json::json!({"image": "x:1", "name": "torch", "python": null});
        let torch = |cuda: &str, missing: &[&str]| serde_json::json!({"version": "2.4.0", "cuda": cuda, "missing": missing});
        let horovod = |built: &[&str]| serde_json::json!({"version": "0.28.1", "frameworks": ["torch"], "missing": [], "built": built});
        for (check, good, others) in [
            ("image", image("GPU-1", Value::Null), vec![image("GPU-2", Value::Null), image("GPU-1", lack)]),
            (
                "torch",
                torch("12.1", &[]),
                vec![torch("12.1", &["libmpi.so.40"]), torch("13.0", &[]), torch("", &[])],
            ),
            (
                "stub",
                serde_json::json!({"first": "/x/libcuda.so.1", "is_stub": false, "by": ""}),
                vec![serde_json::json!({"first": "/x/libcuda.so.1", "is_stub": true, "by": ""})],
            ),
            // of one controller alone it would be red by the other one
            (
                "horovod",
                horovod(&["gloo", "mpi", "nccl"]),
                vec![horovod(&["gloo", "nccl"]), horovod(&["gloo", "mpi"])],
            ),
            ("cuda", serde_json::json!({"answer": 0}), vec![serde_json::json!({"answer": 999})]),
        ] {
            assert!(is_well(check, good.clone()), "{check}: {good}");
            for other in others {
                assert!(!is_well(check, other.clone()), "{check}: {other}");
            }
        }
    }

    #[test]
    fn what_is_late_does_not_keep_back_what_was_told() {
        let checks = ["shm", "image"].map(str::to_owned).to_vec();
        let (modules, image) = (Vec::new(), "0123".to_owned());
        let ask = Ask { at: Stamp(1), checks, modules, starts: None, image, patience_ms: Some(0) };
        let answers = look(ask);
        assert_eq!(answers.len(), 2, "each has one, whatever it is: {answers:?}");
    }

    #[test]
    fn what_helps_is_done_where_the_fault_is() {
        let row = |check: &'static str| {
            let verdict = Verdict::bad("seen", "cause", "sudo ldconfig").fixed_there("sudo ldconfig");
            Row { check, asks: "", verdicts: [(HostId::from("a"), verdict)].into() }
        };
        let matrix = Matrix { hosts: vec![HostId::from("a")], rows: vec![row("stub"), row("shm")] };
        let told = of_image(matrix);
        let of = |at: usize| &told.rows[at].verdicts[&HostId::from("a")];
        assert_eq!((of(0).remedy.as_deref(), &of(0).fix), (Some("in the image: ldconfig"), &None));
        let torch = |remedy: &str| {
            let verdict = Verdict::bad("seen", "cause", remedy);
            let row = Row { check: "torch", asks: "", verdicts: [(HostId::from("a"), verdict)].into() };
            let told = of_image(Matrix { hosts: vec![HostId::from("a")], rows: vec![row] });
            told.rows[0].verdicts[&HostId::from("a")].remedy.clone().unwrap()
        };
        assert_eq!(
            torch("install a newer driver, or torch for CUDA 12"),
            "install a newer driver, or torch for CUDA 12"
        );
        assert_eq!(of(1).help().as_deref(), Some("sudo ldconfig"));
    }
}

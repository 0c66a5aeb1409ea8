//! A look into an image: checks that are made by a process of hvtui's in a container of it, by the same code as on the host. What
//! starts the container is not its business.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::checks::cuda::{self, Cuda};
use super::checks::image::{self, Image};
use super::{Check, OfImage, PATIENCE, Site, Told, check};
use crate::clock;
use crate::domain::doctor::{Fix, Matrix, Started};
use crate::domain::ids::GpuUuid;
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
    let Ask { at, checks, modules, starts, image } = ask;
    let site = Site::new(at, clock::now(), std::env::temp_dir(), Vec::new());
    let site = Arc::new(site.with_modules(modules).starting(starts).in_container(image));
    let begun = clock::host_now().0;
    let late = format!("no answer in {} s: something hangs in the container", PATIENCE.as_secs());
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
        match told.recv_timeout(PATIENCE.saturating_sub(gone)) {
            Ok((name, found)) => answers.insert(name, found),
            Err(_) => return answers,
        };
    }
}

/// Whether a launch need not look again: what the host gives its containers works, and nothing is lacking. What was not told is no
/// reason: it may not be told the next time either, and it would be waited for.
pub fn lasts(answers: &Answers, gpus: &[GpuUuid]) -> bool {
    let is_well = |(check, told): (&String, &Told)| {
        let Ok(found) = told else { return true };
        match check.as_str() {
            Image::NAME => image::Found::deserialize(found).is_ok_and(|found| found.has_all(gpus)),
            Cuda::NAME => cuda::Found::deserialize(found).is_ok_and(|found| found.starts()),
            _ => true,
        }
    };
    answers.iter().all(is_well)
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
    use crate::domain::doctor::{Row, Verdict};
    use crate::domain::ids::HostId;

    #[test]
    fn what_is_asked_is_answered_and_what_is_not_known_says_so() {
        let checks = ["shm", "image", "nonsense"].map(str::to_owned).to_vec();
        let ask = Ask { at: Stamp(1), checks, modules: Vec::new(), starts: None, image: "0123".to_owned() };
        let text = serde_json::to_string(&ask).unwrap();
        let answers = look(serde_json::from_str(&text).unwrap());
        let text = serde_json::to_string(&answers).unwrap();
        let answers: Answers = serde_json::from_str(&text).unwrap();
        assert!(answers["shm"].is_ok() && answers["image"].is_ok(), "{answers:?}");
        assert!(answers["nonsense"].as_ref().unwrap_err().contains("does not know this check"));
        assert_eq!((asked("image:shm"), asked("shm")), (Some("shm"), None));
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

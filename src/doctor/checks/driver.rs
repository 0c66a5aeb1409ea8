//! Whether the NVIDIA driver is the same everywhere.

use super::super::compare::Compared;
use super::super::{Check, Seen, Site};
use crate::domain::doctor::Verdict;

pub(in crate::doctor) struct Driver;

impl Check for Driver {
    const NAME: &'static str = "driver";
    const ASKS: &'static str = "is the NVIDIA driver the same on all hosts";
    const LOOKS: bool = false;
    type Found = ();

    fn look(_: &Site) -> Result<(), String> {
        Ok(())
    }

    fn judge(seen: &[Seen<'_, ()>]) -> Vec<Verdict> {
        let versions =
            seen.iter().filter_map(|one| Some((one.host.as_str(), one.info.driver.value()?.as_str())));
        let all = Compared::new(versions);
        let judge = |one: &Seen<'_, ()>| {
            let Some(own) = one.info.driver.value() else { return Verdict::unknown("no NVIDIA driver") };
            let cuda = one.info.cuda_driver.value().map_or_else(String::new, |cuda| format!(", CUDA {cuda}"));
            let words = format!("{own}{cuda}");
            match all.difference(own) {
                None => Verdict::good(words),
                Some(difference) => Verdict::look(
                    format!("{words}; {difference}"),
                    "an image or a framework that one driver takes may be refused by the other",
                    "install the same driver on all hosts",
                ),
            }
        };
        seen.iter().map(judge).collect()
    }
}

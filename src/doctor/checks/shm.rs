//! Whether shared memory is large enough for data loaders and NCCL.

use serde::{Deserialize, Serialize};

use super::super::{Check, OfImage, Seen, Site};
use crate::domain::doctor::Verdict;
use crate::domain::units;

pub(in crate::doctor) struct Shm;

const FOLDER: &str = "/dev/shm";
/// Docker's default, with which NCCL and torch's data loaders fail.
const FAILS: u64 = 64 << 20;
/// What eight ranks with data loaders want at least.
const LITTLE: u64 = 1 << 30;

/// Until the next boot.
const LARGER: &str = "sudo mount -o remount,size=16G /dev/shm";

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    total: u64,
    free: u64,
}

impl Check for Shm {
    const NAME: &'static str = "shm";
    const ASKS: &'static str = "is /dev/shm large enough for data loaders and NCCL";
    const OF_IMAGE: OfImage = OfImage::There;
    type Found = Option<Found>;

    fn look(_: &Site) -> Result<Option<Found>, String> {
        let stat = rustix::fs::statvfs(FOLDER).ok();
        Ok(stat.map(|stat| Found {
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
        }))
    }

    fn judge(seen: &[Seen<'_, Option<Found>>]) -> Vec<Verdict> {
        seen.iter().map(|one| judge(one.found.as_ref())).collect()
    }
}

fn judge(found: Option<&Found>) -> Verdict {
    let cause = "NCCL ends with \"unhandled system error\", and torch's data loaders with \"Bus error\"";
    let larger = format!("{LARGER}; of a container: --ipc=host or --shm-size=16g");
    let Some(found) = found else {
        let command = "sudo mount -t tmpfs tmpfs /dev/shm";
        return Verdict::bad("there is no /dev/shm", cause, command).fixed_there(command);
    };
    let words = format!("{} of {} free", units::bytes(found.free), units::bytes(found.total));
    match found {
        found if found.total <= FAILS => Verdict::bad(words, cause, larger).fixed_there(LARGER),
        found if found.free <= FAILS => {
            let remedy = "ls -lS /dev/shm | head, and delete what ranks have left that run no more";
            Verdict::bad(words, cause, remedy)
        }
        found if found.total < LITTLE => Verdict::look(words, cause, larger).fixed_there(LARGER),
        _ => Verdict::good(words),
    }
    .lasting("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::preflight::Mark;

    #[test]
    fn small_and_full_are_told_apart() {
        let of = |total, free| judge(Some(&Found { total, free })).mark;
        assert_eq!(of(64 << 20, 64 << 20), Mark::Bad, "what Docker gives");
        assert_eq!(of(512 << 20, 512 << 20), Mark::Look);
        assert_eq!(of(64 << 30, 1 << 20), Mark::Bad);
        assert_eq!(of(64 << 30, 63 << 30), Mark::Good);
        let none = judge(None);
        assert_eq!((none.mark, none.evidence.as_str()), (Mark::Bad, "there is no /dev/shm"));
    }
}

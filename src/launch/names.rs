//! Rules for names that people write, in the hosts file and on the command line alike.

use std::net::Ipv6Addr;

use super::request::SlotName;
use crate::domain::occupancy::FreeMemory;
use crate::domain::run::{MinFree, Spool};
use crate::domain::units;

/// The most characters of a host's or a recipe's name.
pub const NAME_MAX: usize = 64;

/// Variables that hvtui itself sets for each rank; a user may not.
pub const RESERVED_ENV: [&str; 15] = [
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "HVTUI_RUN",
    "HVTUI_HOST",
    "HVTUI_PLACE",
    "HVTUI_SECRET",
    "HVTUI_REPORT",
    "HVTUI_BIND",
    "HVTUI_KV_PORT",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
];

/// What to say of a text that is no cap of a rank's output.
pub const CAP_FAULT: &str = "is no size of 1M or more: write one such as 64M, 256M or 2G";

/// A cap of what a host keeps of a rank's output.
pub fn spool_cap(text: &str) -> Option<u64> {
    units::parse_bytes(text).filter(|cap| *cap >= Spool::LEAST_CAP)
}

/// The multiples of `each` that lie nearest to a number that is none: `2 or 4` of 3 and 2.
pub fn nearest_multiples(number: u32, each: u32) -> String {
    let each = u64::from(each.max(1));
    let below = u64::from(number) / each * each;
    let above = below + each;
    match (below, u32::try_from(above)) {
        (0, _) => above.to_string(),
        (_, Ok(_)) => format!("{below} or {above}"),
        (_, Err(_)) => below.to_string(),
    }
}

/// What to say of a text that is no silence.
pub const SILENCE_FAULT: &str =
    "is no length of time of 1s or more: write one such as 90s, 30m or 2h, or `off`";

/// After how long of silence ranks are ended, in milliseconds; 0 for `off`: never.
pub fn max_silence(text: &str) -> Option<u64> {
    if text.trim() == "off" {
        return Some(0);
    }
    let silence = units::parse_duration(text)?;
    (silence.as_secs() > 0).then_some(silence.as_millis() as u64)
}

/// What shall stay free: a share of the file system, or a size.
pub fn min_free(text: &str) -> Option<MinFree> {
    match text.trim().strip_suffix('%') {
        Some(percent) => percent.trim().parse().ok().filter(|percent| *percent <= 90).map(MinFree::Percent),
        None => units::parse_bytes(text).map(MinFree::Bytes),
    }
}

/// How much memory may be in use on a free GPU: a share of it, or a size.
pub fn free_memory(text: &str) -> Option<FreeMemory> {
    match text.trim().strip_suffix('%') {
        Some(percent) => {
            percent.trim().parse().ok().filter(|percent| *percent <= 90).map(FreeMemory::Percent)
        }
        None => units::parse_bytes(text).map(FreeMemory::Bytes),
    }
}

/// What is wrong with `name` as a host's name, or `None` when it is well-formed. Host names become parts of
/// file names and of `host:slot`, so their characters are few.
pub fn name_fault(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("is empty")
    } else if name.len() > NAME_MAX {
        Some("is longer than 64 characters")
    } else if name.starts_with('-') {
        Some("begins with `-`")
    } else if name.chars().all(|c| c == '.') {
        Some("is made of dots alone")
    } else if name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')) {
        None
    } else {
        Some("has other characters than letters, digits, `.`, `_` and `-`")
    }
}

/// Whether it is an address of IPv6, one of a link with its zone: `fe80::1%eth0`.
pub fn is_ipv6(text: &str) -> bool {
    let (address, zone) = text.split_once('%').unwrap_or((text, "-"));
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    address.parse::<Ipv6Addr>().is_ok() && !zone.is_empty() && zone.chars().all(plain)
}

/// What is wrong with a variable's name, or `None` when a person may set it.
pub fn env_fault(key: &str) -> Option<&'static str> {
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if RESERVED_ENV.contains(&key) {
        Some("is set by hvtui itself, for each rank")
    } else if key.is_empty() || !key.chars().all(letter) || key.starts_with(|c: char| c.is_ascii_digit()) {
        Some("is no name of a variable: letters, digits and `_`, no digit first")
    } else {
        None
    }
}

/// Whether a directory on a host is named so that it means one thing: absolute, or from the home folder.
pub fn is_workdir(path: &str) -> bool {
    (path.starts_with('/') || path == "~" || path.starts_with("~/")) && !path.contains('\0')
}

/// A slot as people name it: its number, or a GPU's UUID; `None` when it is neither.
pub fn slot_name(text: &str) -> Option<SlotName> {
    if let Ok(index) = text.parse::<u32>() {
        return Some(SlotName::Index(index));
    }
    let uuid = text.strip_prefix("GPU-").or_else(|| text.strip_prefix("MIG-"))?;
    let plain = !uuid.is_empty() && uuid.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '/');
    plain.then(|| SlotName::Uuid(text.to_owned()))
}

/// The host's name in `user@host:port`.
pub fn jump_name(hop: &str) -> &str {
    let hop = hop.trim();
    let hop = hop.rsplit_once('@').map_or(hop, |(_, host)| host);
    match hop.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None if hop.matches(':').count() > 1 => hop,
        None => hop.split(':').next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_be_options_or_paths_are_refused() {
        assert_eq!(name_fault("gpu-a.rack_3"), None);
        for bad in ["", "-a", "a b", "a:2", "a/b", "..", "ä", &"x".repeat(65)] {
            assert!(name_fault(bad).is_some(), "{bad:?}");
        }
    }

    #[test]
    fn what_hvtui_sets_no_user_sets() {
        assert_eq!(env_fault("NCCL_DEBUG"), None);
        assert!(env_fault("RANK").unwrap().contains("hvtui itself"));
        for bad in ["", "A=B", "1A", "A B", "A\0"] {
            assert!(env_fault(bad).is_some(), "{bad:?}");
        }
    }

    #[test]
    fn slots_have_numbers_or_uuids() {
        assert_eq!(slot_name("3"), Some(SlotName::Index(3)));
        assert_eq!(slot_name("GPU-3f2a-1"), Some(SlotName::Uuid("GPU-3f2a-1".to_owned())));
        for bad in ["", "-1", "GPU-", "x", "GPU-a b"] {
            assert_eq!(slot_name(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_multiples_on_both_sides_of_a_number_are_named() {
        for (number, each, named) in
            [(3, 2, "2 or 4"), (7, 4, "4 or 8"), (3, 4, "4"), (u32::MAX, 2, "4294967294"), (3, 0, "3 or 4")]
        {
            assert_eq!(nearest_multiples(number, each), named, "{number} {each}");
        }
    }

    #[test]
    fn a_hop_has_a_name() {
        for hop in ["a", "li@a", "a:22", " li@x@a:22 ", "[a]:22"] {
            assert_eq!(jump_name(hop), "a", "{hop}");
        }
        assert_eq!(jump_name("[::1]:22"), "::1");
        assert_eq!(jump_name("::1"), "::1");
    }
}

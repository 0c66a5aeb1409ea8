//! The kernel's text files as numbers. Pure functions of their text: no file is opened here, and what
//! can't be understood is an error, never a zero and never a panic.

use std::collections::BTreeMap;

/// A file of `/proc` that does not read as its manual page says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProcError {
    /// The line or field is missing or no number.
    #[error("{file}: no usable {what}")]
    Malformed {
        /// Path of the file.
        file: &'static str,
        /// What was looked for.
        what: &'static str,
    },
}

fn malformed(file: &'static str, what: &'static str) -> ProcError {
    ProcError::Malformed { file, what }
}

/// Time of all CPUs since boot, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CpuTicks {
    /// Everything, idle included.
    pub(super) total: u64,
    /// Idle and waiting for disks.
    pub(super) idle: u64,
}

/// Memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    /// `MemTotal`.
    pub(super) total: u64,
    /// `MemAvailable`: what new work can have without swapping.
    pub(super) available: u64,
}

/// Bytes that one interface has moved since it came up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Traffic {
    /// Received.
    pub(super) rx: u64,
    /// Sent.
    pub(super) tx: u64,
}

/// The `cpu` line of `/proc/stat`.
///
/// Guest time is part of user time there, so the two guest fields are left out of the sum.
pub(super) fn parse_stat(text: &str) -> Result<CpuTicks, ProcError> {
    let bad = || malformed("/proc/stat", "cpu line");
    let line = text.lines().find_map(|line| line.strip_prefix("cpu ")).ok_or_else(bad)?;
    let fields: Vec<u64> =
        line.split_ascii_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().map_err(|_| bad())?;
    let &[_user, _nice, _system, idle, ref rest @ ..] = fields.as_slice() else {
        return Err(bad());
    };
    let waiting = rest.first().copied().unwrap_or(0);
    Ok(CpuTicks {
        total: fields.iter().copied().fold(0, u64::saturating_add),
        idle: idle.saturating_add(waiting),
    })
}

/// Busy share of the time between two readings, percent; `None` when no time was counted between them.
pub(super) fn busy_percent(before: CpuTicks, after: CpuTicks) -> Option<f32> {
    let total = after.total.checked_sub(before.total).filter(|&ticks| ticks > 0)?;
    // The kernel's idle counters may step back by a tick when a CPU goes offline.
    let idle = after.idle.saturating_sub(before.idle).min(total);
    Some((100.0 * (total - idle) as f64 / total as f64) as f32)
}

/// `/proc/meminfo`.
pub(super) fn parse_meminfo(text: &str) -> Result<Memory, ProcError> {
    let field = |name: &'static str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().strip_suffix("kB"))
            .and_then(|kib| kib.trim().parse::<u64>().ok())
            .and_then(|kib| kib.checked_mul(1024))
            .ok_or_else(|| malformed("/proc/meminfo", name))
    };
    Ok(Memory { total: field("MemTotal")?, available: field("MemAvailable")? })
}

/// The three averages of `/proc/loadavg`.
pub(super) fn parse_loadavg(text: &str) -> Result<[f32; 3], ProcError> {
    let bad = || malformed("/proc/loadavg", "averages");
    let mut fields = text.split_ascii_whitespace();
    let mut next = || {
        let value: f32 = fields.next().and_then(|field| field.parse().ok()).ok_or_else(bad)?;
        if value.is_finite() && value >= 0.0 { Ok(value) } else { Err(bad()) }
    };
    Ok([next()?, next()?, next()?])
}

/// `/proc/net/dev` by interface, loopback left out.
pub(super) fn parse_net_dev(text: &str) -> Result<BTreeMap<String, Traffic>, ProcError> {
    let bad = || malformed("/proc/net/dev", "interface line");
    if !text.starts_with("Inter-|") {
        return Err(malformed("/proc/net/dev", "header"));
    }
    let mut all = BTreeMap::new();
    for line in text.lines().skip(2) {
        // The colon may touch the first number: `eth0:123`.
        let (name, counters) = line.rsplit_once(':').ok_or_else(bad)?;
        let counters: Vec<u64> =
            counters.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>().map_err(|_| bad())?;
        let (Some(&rx), Some(&tx)) = (counters.first(), counters.get(8)) else {
            return Err(bad());
        };
        let name = name.trim();
        if name != "lo" {
            all.insert(name.to_owned(), Traffic { rx, tx });
        }
    }
    Ok(all)
}

/// Bytes moved between two readings by the interfaces that were there both times.
///
/// An interface that came, went or was reset in between counts nothing: its share of the time is unknown.
pub(super) fn moved(before: &BTreeMap<String, Traffic>, after: &BTreeMap<String, Traffic>) -> Traffic {
    let mut sum = Traffic { rx: 0, tx: 0 };
    for (name, now) in after {
        let Some(then) = before.get(name) else { continue };
        sum.rx = sum.rx.saturating_add(now.rx.saturating_sub(then.rx));
        sum.tx = sum.tx.saturating_add(now.tx.saturating_sub(then.tx));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STAT: &str = "cpu  170432 12 40210 5120033 2100 0 911 40 0 0\ncpu0 85216 6 20105 2560016 1050 0 455 20 0 0\n\
                        intr 1 2 3\nctxt 99\nbtime 1795000000\n";
    const MEMINFO: &str = "MemTotal:       24689456 kB\nMemFree:         1203388 kB\nMemAvailable:   18302004 kB\n\
                           Buffers:          402012 kB\nHugePages_Total:       0\n";
    const NET_DEV: &str = "Inter-|   Receive                                                |  Transmit\n \
         face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
         lo:  999999     100    0    0    0     0          0         0   999999     100    0    0    0     0       0          0\n  \
         eth0: 1296423    1210    0    0    0     0          0        12   204811    1001    0    0    0     0       0          0\n\
         eth1:2048 2 0 0 0 0 0 0 4096 4 0 0 0 0 0 0\n";

    #[test]
    fn cpu_time_is_busy_over_all() {
        let before = parse_stat(STAT).unwrap();
        assert_eq!(before, CpuTicks { total: 5_333_738, idle: 5_122_133 });
        let after = CpuTicks { total: before.total + 200, idle: before.idle + 150 };
        assert_eq!(busy_percent(before, after), Some(25.0));
        assert_eq!(busy_percent(before, before), None, "no time has passed: unknown, not 0");
        assert_eq!(busy_percent(after, before), None);
        let backwards = CpuTicks { total: before.total + 10, idle: before.idle - 1 };
        assert_eq!(busy_percent(before, backwards), Some(100.0));
    }

    #[test]
    fn an_old_kernel_has_four_fields() {
        assert_eq!(parse_stat("cpu  1 2 3 4\n").unwrap(), CpuTicks { total: 10, idle: 4 });
    }

    #[test]
    fn memory_is_in_bytes() {
        let memory = parse_meminfo(MEMINFO).unwrap();
        assert_eq!(memory, Memory { total: 24_689_456 * 1024, available: 18_302_004 * 1024 });
        let error = parse_meminfo("MemTotal: 1 kB\n").unwrap_err();
        assert_eq!(error.to_string(), "/proc/meminfo: no usable MemAvailable");
    }

    #[test]
    fn load_has_three_parts() {
        let load = parse_loadavg("0.25 1.50 12.75 1/80 11206\n").unwrap();
        assert_eq!(load.map(|one| (one * 100.0) as u32), [25, 150, 1275]);
        for garbage in ["", "0.1 0.2", "a b c", "NaN 0 0", "-1 0 0"] {
            assert!(parse_loadavg(garbage).is_err(), "{garbage:?}");
        }
    }

    #[test]
    fn traffic_leaves_loopback_out() {
        let before = parse_net_dev(NET_DEV).unwrap();
        assert_eq!(before.keys().collect::<Vec<_>>(), ["eth0", "eth1"]);
        assert_eq!(before["eth1"], Traffic { rx: 2048, tx: 4096 });
        let mut after = before.clone();
        after.insert("eth0".to_owned(), Traffic { rx: 1_296_423 + 1000, tx: 204_811 + 10 });
        after.insert("eth1".to_owned(), Traffic { rx: 0, tx: 0 });
        after.insert("docker0".to_owned(), Traffic { rx: 77, tx: 77 });
        assert_eq!(moved(&before, &after), Traffic { rx: 1000, tx: 10 });
    }

    #[test]
    fn garbage_is_an_error() {
        for garbage in ["", "cpu", "cpu  x y z", "cpu  1 2", "cpu  1 2 3 99999999999999999999999"] {
            assert!(parse_stat(garbage).is_err(), "{garbage:?}");
        }
        for garbage in ["", "eth0: 1 2", "Inter-|\n face |\n eth0 12", "Inter-|\n face |\n eth0: 1 2 3"] {
            assert!(parse_net_dev(garbage).is_err(), "{garbage:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z0-9:|\\-. \n]{0,200}") {
            let _ = parse_stat(&format!("cpu {text}"));
            let _ = parse_meminfo(&format!("MemTotal:{text}kB\nMemAvailable:{text}"));
            let _ = parse_loadavg(&text);
            let _ = parse_net_dev(&format!("Inter-|{text}"));
        }
    }
}

//! Whether this host has more to do than its processors can.

use super::procfs;

/// How many processes want a processor, for each that there is, from which on what is late is so for that alone.
const BUSY: f64 = 2.0;

/// `it is very busy, load 23.1 on 2 processors`; `None` where it is not.
pub fn busy() -> Option<String> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    words(&std::fs::read_to_string("/proc/loadavg").ok()?, processors)
}

fn words(loadavg: &str, processors: usize) -> Option<String> {
    let load = f64::from(procfs::parse_loadavg(loadavg).ok()?[0]);
    let of = if processors == 1 { "processor" } else { "processors" };
    (load > BUSY * processors as f64).then(|| format!("it is very busy, load {load:.1} on {processors} {of}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_busy_where_many_wait_for_each_processor() {
        assert_eq!(words("4.00 3.10 2.00 5/400 123\n", 2), None);
        assert_eq!(
            words("23.14 9 8 20/400 1", 2).as_deref(),
            Some("it is very busy, load 23.1 on 2 processors")
        );
        assert_eq!(words("3 1 1 2/9 1", 1).as_deref(), Some("it is very busy, load 3.0 on 1 processor"));
        assert_eq!(words("", 2), None);
    }
}

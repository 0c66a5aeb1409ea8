//! Whether the ports that launchers take unless they are told another are free, and who has them.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;

use serde::{Deserialize, Serialize};

use super::super::{Check, Seen, Site};
use crate::domain::doctor::Verdict;
use crate::procs::status::user_name;
use crate::procs::{memory, table};

pub(in crate::doctor) struct Ports;

/// Each with whose it is.
const WANTED: [(u16, &str); 4] = [
    (29_500, "torch's MASTER_PORT"),
    (29_400, "torchrun's rendezvous"),
    (12_355, "torch's tutorials"),
    (2222, "TensorFlow's tutorials"),
];
/// `LISTEN` in the kernel's tables.
const LISTENS: &str = "0A";
/// Characters of a command line.
const COMMAND: usize = 80;

/// A port that something listens on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::doctor) struct Held {
    port: u16,
    user: String,
    /// Its process: only that of a user of one's own can be told.
    command: Option<String>,
    /// Whether any machine that reaches this one can connect to it.
    from_everywhere: bool,
}

impl Check for Ports {
    const NAME: &'static str = "ports";
    const ASKS: &'static str = "are the ports free that torchrun and TensorFlow take unless told another";
    type Found = Vec<Held>;

    fn look(_: &Site) -> Result<Vec<Held>, String> {
        let tables =
            ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
        let mut listening: BTreeMap<u16, Listening> = BTreeMap::new();
        for one in tables.iter().flat_map(|text| text.lines()).filter_map(listens) {
            listening.entry(one.port).or_insert(one);
        }
        let mut found = Vec::new();
        for (port, _) in WANTED {
            if let Some(one) = listening.get(&port) {
                let (user, command) = (user_name(one.uid), command(one.inode));
                found.push(Held { port, user, command, from_everywhere: one.from_everywhere });
            }
        }
        Ok(found)
    }

    fn judge(seen: &[Seen<'_, Vec<Held>>]) -> Vec<Verdict> {
        seen.iter().map(|one| judge(&one.found)).collect()
    }
}

/// A line of the kernel's table of sockets, of one that listens.
struct Listening {
    port: u16,
    from_everywhere: bool,
    uid: u32,
    inode: u64,
}

fn listens(line: &str) -> Option<Listening> {
    let mut fields = line.split_ascii_whitespace();
    let (address, port) = fields.nth(1)?.split_once(':')?;
    if fields.nth(1)? != LISTENS {
        return None;
    }
    Some(Listening {
        port: u16::from_str_radix(port, 16).ok()?,
        from_everywhere: address.bytes().all(|byte| byte == b'0'),
        uid: fields.nth(3)?.parse().ok()?,
        inode: fields.nth(1)?.parse().ok()?,
    })
}

/// The command line of the process that has a socket.
fn command(inode: u64) -> Option<String> {
    let wanted = format!("socket:[{inode}]");
    let has = |pid: u32| {
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut links = descriptors.filter_map(|one| std::fs::read_link(one.path()).ok());
        links.any(|link| link.as_os_str().as_bytes() == wanted.as_bytes())
    };
    let process = table::all().into_iter().find(|process| has(process.pid))?;
    let line = memory::command_line(process.pid).ok()?;
    let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    Some(words.join(" ").trim_end().chars().take(COMMAND).collect())
}

fn judge(held: &[Held]) -> Verdict {
    let whose = |port: u16| WANTED.iter().find(|(one, _)| *one == port).map_or("", |(_, whose)| whose);
    let words: Vec<String> = held
        .iter()
        .take(WANTED.len())
        .map(|one| {
            let command = one.command.as_ref().map_or_else(String::new, |command| format!(" ({command})"));
            let from = if one.from_everywhere { ", for every machine" } else { "" };
            format!("{} ({}) is taken by {}{command}{from}", one.port, whose(one.port), one.user)
        })
        .collect();
    if words.is_empty() {
        let ports: Vec<String> = WANTED.iter().map(|(port, _)| port.to_string()).collect();
        return Verdict::good(format!("{} are free", ports.join(", ")));
    }
    Verdict::look(
        words.join("; "),
        "a job that is started by itself ends with \"Address already in use\", or joins another one; the runs of hvtui find free ports",
        "end it, or give another port: torchrun --master-port 29501",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::preflight::Mark;

    #[test]
    fn the_kernels_table_is_read() {
        let line = "   0: 00000000:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0000 100 0 0 10 0";
        let one = listens(line).unwrap();
        assert_eq!((one.port, one.from_everywhere, one.uid, one.inode), (29_500, true, 1000, 4711));
        assert!(listens(&line.replace(" 0A ", " 01 ")).is_none(), "a connection is none");
        assert!(listens("  sl  local_address rem_address   st").is_none());
        let here = listens(&line.replace("00000000:733C", "0100007F:733C")).unwrap();
        assert!(!here.from_everywhere);
    }

    #[test]
    fn who_has_a_port_is_found_and_told() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let own = table.lines().filter_map(listens).find(|one| one.port == port).unwrap();
        assert!(command(own.inode).is_some(), "it is this process");
        assert_eq!(judge(&[]).mark, Mark::Good);
        let held = Held {
            port: 29_500,
            user: "li".into(),
            command: Some("python3 a.py".into()),
            from_everywhere: true,
        };
        let verdict = judge(&[held]);
        let words = "29500 (torch's MASTER_PORT) is taken by li (python3 a.py), for every machine";
        assert_eq!((verdict.mark, verdict.evidence.as_str()), (Mark::Look, words));
    }
}

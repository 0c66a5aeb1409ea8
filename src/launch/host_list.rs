//! Lists of hosts with their numbers of ranks: `-H`, and host files. Pure: files are handed in as text.

use super::names;
use super::paste::split_port;
use super::read::RequestError;
use crate::domain::ids::HostId;

/// `a:2,b:2,[fd77::11]:2`; a host without a number counts as one rank; a host named again adds to its ranks, as with Open
/// MPI's `mpirun`.
pub fn host_list(list: &str) -> Result<Vec<(HostId, u32)>, RequestError> {
    let mut hosts = Vec::new();
    let words: Vec<&str> = list.split_whitespace().collect();
    if words.len() > 1 {
        let joined: Vec<&str> = words.iter().map(|word| word.trim_matches(',')).collect();
        return Err(RequestError::HostsBySpace(list.to_owned(), joined.join(",")));
    }
    for entry in list.split(',') {
        let (host, count) = host_entry(entry).map_err(|fault| RequestError::BadHost {
            list: list.to_owned(),
            entry: entry.to_owned(),
            fault,
        })?;
        add(&mut hosts, host, count);
    }
    Ok(hosts)
}

/// A host file's text: one host a line as `a slots=2` (Open MPI, Horovod), `a:2` (MPICH) or `a`;
/// `max_slots=4` (Open MPI) only has to be no less than the slots, of which no more are used; `#` begins a comment. `file` names it in errors.
pub fn host_file(file: &str, text: &str) -> Result<Vec<(HostId, u32)>, RequestError> {
    let mut hosts = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let said = line.split('#').next().unwrap_or("").trim();
        if said.is_empty() {
            continue;
        }
        let (host, count) = host_line(said).map_err(|fault| RequestError::BadHostFile {
            file: file.to_owned(),
            line: number + 1,
            text: said.to_owned(),
            fault,
        })?;
        add(&mut hosts, host, count);
    }
    if hosts.is_empty() { Err(RequestError::EmptyHostFile(file.to_owned())) } else { Ok(hosts) }
}

fn host_line(line: &str) -> Result<(HostId, u32), String> {
    let mut words = line.split_whitespace();
    let (host, mut count) = host_entry(words.next().unwrap_or(""))?;
    let mut most = u32::MAX;
    for word in words {
        match word.split_once('=') {
            Some(("slots", number)) => count = ranks(number)?,
            Some(("max_slots" | "max-slots", number)) => most = ranks(number)?,
            Some((key, _)) => return Err(format!("has `{key}`, which is not supported yet")),
            None => return Err(format!("has the stray word `{word}`")),
        }
    }
    if count > most { Err(format!("has {count} slots and max_slots={most}")) } else { Ok((host, count)) }
}

/// A host with its number of ranks as `-H` takes it: an address of IPv6 stands in brackets.
pub fn entry(host: &str, ranks: impl std::fmt::Display) -> String {
    if host.contains(':') { format!("[{host}]:{ranks}") } else { format!("{host}:{ranks}") }
}

pub(super) fn host_entry(entry: &str) -> Result<(HostId, u32), String> {
    if entry.contains('@') {
        return Err("holds a user, which belongs into the hosts file".to_owned());
    }
    // an address of IPv6 may end like a number of ranks: with one it stands in brackets
    let (host, count) = if names::is_ipv6(entry) {
        (entry, None)
    } else {
        split_port(entry).ok_or("is neither a host nor an IPv6 address, whose number of ranks stands behind brackets as in `[fd77::11]:2`")?
    };
    let count = count.map_or(Ok(1), ranks)?;
    match names::name_fault(host).filter(|_| !names::is_ipv6(host)) {
        Some(fault) => Err(format!("names a host that {fault}")),
        None => Ok((HostId::from(host), count)),
    }
}

fn ranks(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(0) => Err("asks for 0 ranks".to_owned()),
        Ok(count) => Ok(count),
        Err(_) => Err(format!("has `{text}` where a number of ranks belongs")),
    }
}

fn add(hosts: &mut Vec<(HostId, u32)>, host: HostId, count: u32) {
    match hosts.iter_mut().find(|(known, _)| *known == host) {
        Some((_, sum)) => *sum = sum.saturating_add(count),
        None => hosts.push((host, count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_ipv6_stand_bare_or_before_a_number_in_brackets() {
        let read = |list: &str| {
            let hosts = host_list(list).unwrap();
            hosts.iter().map(|(host, ranks)| format!("{host} {ranks}")).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(read("[fd77::11]:1"), "fd77::11 1");
        assert_eq!(read("fd77::11,[fd77::12]:3,fd77::11"), "fd77::11 2, fd77::12 3");
        assert_eq!(read("[::1],fe80::1%eth0,a:2"), "::1 1, fe80::1%eth0 1, a 2");
        assert_eq!(host_file("h", "[fd77::11]:2\nfd77::12 slots=3\n").unwrap().len(), 2);
        for (list, fault) in [
            ("[fd77::11]:0", "asks for 0 ranks"),
            ("[fd77::11]2", "is neither a host nor an IPv6 address"),
            ("[fd77::11", "is neither a host nor an IPv6 address"),
            ("a:2:2", "is neither a host nor an IPv6 address"),
            ("[a b]:2", "join the hosts with a comma"),
            ("[a/b]:2", "names a host that has other characters"),
        ] {
            let told = host_list(list).unwrap_err().to_string();
            assert!(told.contains(fault), "{told}");
        }
    }
}

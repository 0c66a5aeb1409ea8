//! Several programs in one line of mpirun: `mpirun -np 1 -H a ./x : -np 3 -H b ./y`. Each part has options of its own.

use crate::domain::options::RankProgram;
use crate::launch::setup;
use crate::launch::words::Caret;

use super::draft::Draft;
use super::mpirun;
use super::pasted::{HostSlots, Pasted};

/// What stands between two programs.
const BETWEEN: &str = ":";

/// One of the programs.
struct Part {
    np: Option<u32>,
    hosts: Vec<HostSlots>,
    command: Vec<String>,
    /// Whether it says no more than that.
    is_simple: bool,
}

/// Reads the programs behind the first, whose command begins at the word `command`; where hvtui can start them the draft has
/// all their ranks and hosts, else the line is mpirun's, with the hosts of all of them.
pub(super) fn read(draft: &mut Draft<'_>, command: usize) -> Result<(), Caret> {
    let words = &draft.line.words;
    let ends: Vec<usize> = (command..words.len()).filter(|at| words[*at].text == BETWEEN).collect();
    let Some(first) = ends.first() else { return Ok(()) };
    let mut parts = vec![first_part(draft, command, *first)];
    let next = ends.iter().skip(1).copied().chain([words.len()]);
    for (from, to) in ends.iter().zip(next) {
        parts.push(part(draft, from + 1, to)?);
    }
    let one = one_host(&parts);
    let placed: Option<Vec<Vec<HostSlots>>> = parts.iter().map(|part| placed(part, one.as_ref())).collect();
    if let Some(placed) = placed.filter(|placed| can_start(draft, &parts, placed)) {
        start(draft, parts, &placed);
    } else {
        draft.pasted.not_understood.push(": (several programs)".to_owned());
        draft.pasted.hosts = match one {
            Some(host) => vec![HostSlots { slots: slots_of_all(&parts), ..host }],
            None => hosts_of_all(parts),
        };
    }
    Ok(())
}

fn first_part(draft: &Draft<'_>, from: usize, to: usize) -> Part {
    let pasted = &draft.pasted;
    Part {
        np: pasted.np,
        hosts: pasted.hosts.clone(),
        command: draft.line.words[from..to].iter().map(|word| word.text.clone()).collect(),
        is_simple: pasted.hostfile.is_none()
            && pasted.per_node.is_none()
            && !pasted.oversubscribe
            && pasted.workdir == setup::prepared(draft.line).ok().and_then(|before| before.workdir),
    }
}

/// The part of these words: options of mpirun, then a program.
fn part(draft: &mut Draft<'_>, from: usize, to: usize) -> Result<Part, Caret> {
    let line = draft.line.part(from..to);
    let mut inner = Draft::new(&line);
    let command = mpirun::options(&mut inner, 0)?;
    inner.check_hosts(command)?;
    if let Some(caret) = inner.pasted.misspelt.take() {
        draft.pasted.misspelt.get_or_insert(caret);
    }
    if line.words.get(command).is_none() {
        let end = draft.line.words.get(to).map_or(draft.line.text.len(), |word| word.span.start);
        let text =
            format!("no command to run behind `{BETWEEN}`: the part ends where the program to start belongs");
        return Err(draft.line.caret(end..end, text));
    }
    let Pasted { np, hosts, .. } = inner.pasted.clone();
    let rest =
        Pasted { np: None, hosts: Vec::new(), remarks: Vec::new(), ..std::mem::take(&mut inner.pasted) };
    Ok(Part { np, hosts, command: inner.texts(command), is_simple: rest == Pasted::default() })
}

/// The host that all parts have which name one.
fn one_host(parts: &[Part]) -> Option<HostSlots> {
    let mut hosts = parts.iter().flat_map(|part| &part.hosts);
    let first = hosts.next()?;
    hosts.all(|host| is_same(host, first)).then(|| first.clone())
}

/// The slots of the only host, where each part says some.
fn slots_of_all(parts: &[Part]) -> Option<u32> {
    let mut slots = parts.iter().map(|part| part.hosts.first()?.slots);
    slots.try_fold(0_u32, |sum, slots| Some(sum.saturating_add(slots?)))
}

/// Every host that a part names, with the slots of all of them.
fn hosts_of_all(parts: Vec<Part>) -> Vec<HostSlots> {
    let mut all = Vec::new();
    for part in parts {
        let np = part.np.filter(|_| part.hosts.len() == 1);
        for host in part.hosts {
            add(&mut all, HostSlots { slots: host.slots.or(np), ..host });
        }
    }
    all
}

/// The hosts of a part, each with its ranks, slot after slot; `None` where the line does not say it.
fn placed(part: &Part, one: Option<&HostSlots>) -> Option<Vec<HostSlots>> {
    let hosts = match (part.hosts.as_slice(), one) {
        ([], Some(one)) => vec![HostSlots { slots: None, ..one.clone() }],
        (hosts, _) => hosts.to_vec(),
    };
    let given = hosts.iter().map(|host| host.slots.unwrap_or(1)).fold(0, u32::saturating_add);
    let mut left = part.np.or((!part.hosts.is_empty()).then_some(given))?;
    if let [host] = hosts.as_slice() {
        return Some(vec![HostSlots { slots: Some(left), ..host.clone() }]);
    }
    let mut filled = Vec::new();
    for host in hosts {
        let ranks = host.slots.unwrap_or(1).min(left);
        left -= ranks;
        filled.extend((ranks > 0).then_some(HostSlots { slots: Some(ranks), ..host }));
    }
    // a part without hosts has its ranks wherever there is room
    (left == 0 || filled.is_empty()).then_some(filled)
}

/// Whether hvtui starts them in the order in which mpirun numbers them: the ranks of a host are one block.
fn can_start(draft: &Draft<'_>, parts: &[Part], placed: &[Vec<HostSlots>]) -> bool {
    let is_same_program = parts.iter().all(|part| part.command == parts[0].command);
    let named = placed.iter().filter(|hosts| !hosts.is_empty()).count();
    let mut blocks: Vec<&HostSlots> = placed.iter().flatten().collect();
    blocks.dedup_by(|a, b| is_same(a, b));
    let is_ordered =
        blocks.iter().enumerate().all(|(at, host)| blocks[..at].iter().all(|before| !is_same(before, host)));
    let is_whole = draft.pasted.not_understood.is_empty() && parts.iter().all(|part| part.is_simple);
    is_whole && (named == 0 || named == parts.len()) && (is_same_program || is_ordered)
}

fn start(draft: &mut Draft<'_>, parts: Vec<Part>, placed: &[Vec<HostSlots>]) {
    let mut hosts = Vec::new();
    placed.iter().flatten().for_each(|host| add(&mut hosts, host.clone()));
    let ranks = |(part, placed): (&Part, &Vec<HostSlots>)| {
        part.np.unwrap_or_else(|| placed.iter().filter_map(|host| host.slots).fold(0, u32::saturating_add))
    };
    let ranks: Vec<u32> = parts.iter().zip(placed).map(ranks).collect();
    draft.pasted.hosts = hosts;
    draft.pasted.np = Some(ranks.iter().copied().fold(0, u32::saturating_add));
    draft.pasted.command.clone_from(&parts[0].command);
    if parts.iter().all(|part| part.command == parts[0].command) {
        return;
    }
    let programs = parts.into_iter().zip(ranks);
    draft.pasted.programs =
        programs.map(|(part, ranks)| RankProgram { ranks, command: part.command }).collect();
    let count = draft.pasted.programs.len();
    draft.remark(format!(
        "{count} programs in one job: each rank starts its own; MPI_APPNUM and OMPI_MCA_… of single programs are those of the first."
    ));
}

fn is_same(a: &HostSlots, b: &HostSlots) -> bool {
    (&a.host, &a.user) == (&b.host, &b.user)
}

/// Adds a host; one that is there gets more slots.
fn add(hosts: &mut Vec<HostSlots>, host: HostSlots) {
    match hosts.iter_mut().find(|had| is_same(had, &host)) {
        Some(had) => had.slots = Some(had.slots.unwrap_or(1).saturating_add(host.slots.unwrap_or(1))),
        None => hosts.push(host),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::*;
    use super::*;

    fn hosts(read: &Pasted) -> String {
        let hosts = read.hosts.iter().map(|host| format!("{}:{}", host.host, host.slots.unwrap_or(0)));
        hosts.collect::<Vec<_>>().join(",")
    }

    fn programs(read: &Pasted) -> String {
        let all = read.programs.iter().map(|one| format!("{} {}", one.ranks, one.command.join(" ")));
        all.collect::<Vec<_>>().join(" + ")
    }

    #[test]
    fn one_program_on_several_hosts_is_one_job() {
        let read =
            pasted("mpirun -np 1 -H n1 python3 a.py : -np 2 -H n2 python3 a.py : -np 1 -H n1 python3 a.py");
        assert_eq!((hosts(&read).as_str(), read.np), ("n1:2,n2:2", Some(4)));
        assert_eq!((read.command.join(" "), read.is_delegated()), ("python3 a.py".to_owned(), false));
        assert!(read.programs.is_empty(), "{read:?}");
    }

    #[test]
    fn different_programs_are_started_rank_by_rank() {
        let read = pasted("mpirun -np 1 -H n1 ./a x : -np 3 -H n2:2,n3:2 ./b : -np 1 -H n3 ./c");
        assert_eq!((hosts(&read).as_str(), read.np), ("n1:1,n2:2,n3:2", Some(5)));
        assert_eq!(programs(&read), "1 ./a x + 3 ./b + 1 ./c");
        assert_eq!((read.command, read.not_understood.len()), (words("./a x"), 0));
        let read = pasted("mpirun -np 1 -H a ./a : -np 3 ./b");
        assert_eq!((hosts(&read).as_str(), programs(&read).as_str()), ("a:4", "1 ./a + 3 ./b"));
        let read = pasted("mpirun -np 1 ./a : -np 2 ./b");
        assert_eq!((read.hosts.len(), read.np, programs(&read).as_str()), (0, Some(3), "1 ./a + 2 ./b"));
    }

    #[test]
    fn what_mpirun_alone_can_start_holds_the_hosts_of_all() {
        for (line, all) in [
            ("mpirun -np 1 -H n1 ./a : -np 2 -H n2 ./b : -np 1 -H n1 ./c", "n1:2,n2:2"),
            ("mpirun -np 1 -H n1 ./a : -np 1 -H n2 -x A=1 ./b", "n1:1,n2:1"),
            ("mpirun -np 1 -H n1:2 ./a : -np 1 -H n2:2 -wdir /x ./b", "n1:2,n2:2"),
            ("mpirun -np 1 ./a : ./b", ""),
        ] {
            let read = pasted(line);
            assert_eq!(read.not_understood, [": (several programs)"], "{line}");
            assert!(read.programs.is_empty() && read.command.contains(&":".to_owned()), "{line}");
            assert_eq!(hosts(&read), all, "{line}");
        }
        let (text, at) = fault("mpirun -np 1 ./a : -np 1");
        assert!(text.contains("no command to run behind `:`") && at.is_empty(), "{text}");
        let (text, at) = fault("mpirun -np 1 -H a ./a : -np 3 -H b:2 ./b");
        assert!(text.contains("3 ranks do not fit") && at == "-np 3", "{text} {at}");
    }
}

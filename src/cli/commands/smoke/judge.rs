//! What became of a step: what its runs have printed, against what was to be expected. Pure.

use serde::Serialize;
use serde_json::Value;

use crate::domain::ids::HostId;
use crate::domain::outcome::BUSY;
use crate::domain::preflight::Mark;
use crate::domain::text::in_list;
use crate::domain::units::counted;

/// Of what a link gives, the share below which an allreduce is to be looked at; of what the interface gives, a link.
const SHARE: f64 = 0.5;
/// Lines that are shown of what has failed.
const LINES: usize = 4;

/// What one command line has given.
#[derive(Debug, Clone, Default)]
pub(super) struct Ran {
    /// The host or hosts.
    pub(super) place: String,
    /// Its words, without the program.
    pub(super) words: Vec<String>,
    /// Its exit code; `None` where it was ended for taking too long.
    pub(super) code: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) step: &'static str,
    pub(super) place: String,
    pub(super) mark: Mark,
    /// What was to be expected, for people; empty where nothing is.
    pub(super) expected: String,
    pub(super) measured: String,
    /// GB/s that were to be expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expected_rate: Option<f64>,
    /// GB/s that were measured, of the slowest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rate: Option<f64>,
    /// The last words of what has failed; of what is slow, in what way.
    pub(super) words: Vec<String>,
    /// The command that does it again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) again: Option<String>,
    /// How long it took.
    pub(super) seconds: f64,
}

/// The load of a host, a processor, from which on others' work may make a measurement slow.
const BUSY_LOAD: f32 = 0.75;
/// Hosts that are named.
const NAMED: usize = 4;

/// `n1 (load 14 on 8 CPUs)`, of a host whose processors others keep busy: by its load over a minute, before anything was measured.
pub(super) fn busy(host: &HostId, load: f32, cpus: u32) -> Option<String> {
    (cpus > 0 && load >= BUSY_LOAD * cpus as f32).then(|| format!("{host} (load {load:.0} on {cpus} CPUs)"))
}

impl Row {
    /// With the hosts that were busy before, where it has measured something slow, or something of which it is not known what was to
    /// be expected.
    pub(super) fn beside(mut self, busy: &[String]) -> Self {
        let may_be_slow = self.mark == Mark::Look || self.expected_rate.is_none();
        if self.rate.is_some() && may_be_slow && !busy.is_empty() {
            let named: Vec<&str> = busy.iter().take(NAMED).map(String::as_str).collect();
            let more = busy.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            self.words.push(format!("other processes kept CPUs busy before: {}{more}", named.join(", ")));
        }
        self
    }

    /// Of a step that was not tried, and why.
    pub(super) fn left(step: &'static str, why: String) -> Self {
        Self {
            step,
            place: String::new(),
            mark: Mark::Unknown,
            expected: String::new(),
            measured: why,
            expected_rate: None,
            rate: None,
            words: Vec::new(),
            again: None,
            seconds: 0.0,
        }
    }
}

/// Hosts of so many that are not reached, each with why: no step tells anything of them.
pub(super) fn not_reached(hosts: &[(String, String)], of: usize) -> Row {
    let line = |(host, why): &(String, String)| {
        let why = why.strip_prefix(host.as_str()).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(why);
        format!("{host}: {}", in_list(why))
    };
    let mut words: Vec<String> = hosts.iter().take(LINES).map(line).collect();
    let more = hosts.len().saturating_sub(LINES);
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    Row {
        place: format!("{} of {}", hosts.len(), counted(of, "host")),
        mark: Mark::Bad,
        words,
        again: Some("hvtui doctor".to_owned()),
        ..Row::left("doctor", "not reached".to_owned())
    }
}

/// Judges a step by its runs; `link` is the rate of the slowest link, where that is known.
pub(super) fn judge(step: &'static str, place: &str, ran: &[Ran], link: Option<f64>) -> Row {
    let row = Row { place: place.to_owned(), ..Row::left(step, String::new()) };
    if let Some(failed) = ran.iter().find(|one| one.code != Some(0)) {
        return failure(row, failed);
    }
    match step {
        "link" => links(row, ran),
        "tcp" | "nccl" => rated(row, ran, link),
        "mixed" => {
            let row = rated(row, ran, link);
            let head = ran.iter().flat_map(|one| objects(&one.out)).find(is("head")).unwrap_or_default();
            let transport = head["transport"].as_str().unwrap_or("an unknown transport");
            Row { measured: format!("{}, by {transport}", row.measured), ..row }
        }
        "shm" => rated(row, ran, None),
        "train" => trained(row, ran),
        "container" => {
            Row { mark: Mark::Good, measured: "a container starts on each host".to_owned(), ..row }
        }
        _ => summed(row, ran),
    }
}

/// The command line that does a run again.
fn repeated(ran: &Ran) -> Option<String> {
    shlex::try_join(std::iter::once("hvtui").chain(ran.words.iter().map(String::as_str))).ok()
}

/// A row that is slower than half of what was to be expected says so, with the run to do again; another one stays.
fn told_slow(row: Row, ran: Option<&Ran>, than: &str) -> Row {
    if row.mark != Mark::Look {
        return row;
    }
    Row { words: vec![format!("less than half of {than}")], again: ran.and_then(repeated), ..row }
}

fn failure(row: Row, failed: &Ran) -> Row {
    let words = last_words(failed);
    let again = repeated(failed);
    let place = failed.place.clone();
    match failed.code {
        Some(code) if code == i32::from(BUSY) => {
            let measured = "its GPUs are in use: not tried".to_owned();
            Row { mark: Mark::Unknown, measured, words, again, place, ..row }
        }
        Some(code) => {
            Row { mark: Mark::Bad, measured: format!("failed: exit {code}"), words, again, place, ..row }
        }
        None => {
            Row { mark: Mark::Bad, measured: "took too long: ended".to_owned(), words, again, place, ..row }
        }
    }
}

/// What the ranks and hvtui have said last, without what is only about the run as such.
fn last_words(failed: &Ran) -> Vec<String> {
    let of_ranks = failed.out.lines().filter(|line| !line.contains("{\""));
    let about = ["replay it:", "run ", "prepare ", "RANK ", "nothing of the run is left"];
    let own = failed.err.lines().map(|line| line.strip_prefix("hvtui: ").unwrap_or(line));
    let own = own.filter(|line| !about.iter().any(|about| line.starts_with(about)));
    let last = |lines: Vec<&str>, most: usize| -> Vec<String> {
        lines.iter().skip(lines.len().saturating_sub(most)).map(|line| (*line).to_owned()).collect()
    };
    let is_said = |line: &&str| !line.trim().is_empty();
    let mut words = last(of_ranks.filter(is_said).collect(), LINES / 2);
    words.extend(last(own.filter(is_said).collect(), LINES));
    words
}

/// The objects in what ranks have printed, each line with its rank before it.
fn objects(text: &str) -> impl Iterator<Item = Value> + '_ {
    text.lines().filter_map(|line| serde_json::from_str(&line[line.find('{')?..]).ok())
}

fn is(kind: &'static str) -> impl Fn(&Value) -> bool {
    move |object| object["type"] == kind
}

fn links(row: Row, ran: &[Ran]) -> Row {
    let all: Vec<Value> = ran.iter().flat_map(|one| objects(&one.out)).filter(is("link")).collect();
    let rate = |link: &Value| link["rate"].as_f64().unwrap_or(0.0);
    let Some(slowest) = all.iter().min_by(|a, b| rate(a).total_cmp(&rate(b))) else { return silent(row) };
    let word = |name: &str| slowest[name].as_str().unwrap_or("?").to_owned();
    let (from, to, rate) = (word("from"), word("to"), rate(slowest));
    let nominal = slowest["nominal"].as_f64();
    let measured = match all.len() {
        1 | 2 => format!("{rate:.2} GB/s"),
        _ => format!("{rate:.2} GB/s, slowest from {from} to {to}"),
    };
    let mark = if nominal.is_some_and(|all| rate < SHARE * all) { Mark::Look } else { Mark::Good };
    let expected = nominal.map_or_else(String::new, |all| format!("{all:.2} GB/s"));
    let row = Row { mark, expected, measured, expected_rate: nominal, rate: Some(rate), ..row };
    told_slow(row, ran.first(), &format!("what the interface gives, from {from} to {to}"))
}

/// GB/s of the slowest run's allreduce against what is to be expected; where that is not known, against the other runs.
fn rated(row: Row, ran: &[Ran], expected: Option<f64>) -> Row {
    let mut rates: Vec<(f64, &str)> =
        ran.iter().filter_map(|one| Some((busbw(&one.out)?, one.place.as_str()))).collect();
    let has_any = !rates.is_empty();
    // one rank alone sends nothing, and has no rate
    rates.retain(|(rate, _)| *rate > 0.0);
    if has_any && rates.is_empty() {
        return Row {
            mark: Mark::Good,
            measured: "sums right; one rank alone moves nothing".to_owned(),
            ..row
        };
    }
    let Some((rate, place)) = rates.iter().copied().min_by(|a, b| a.0.total_cmp(&b.0)) else {
        return silent(row);
    };
    let of_others = || {
        let mut others: Vec<f64> = rates.iter().map(|(rate, _)| *rate).collect();
        others.sort_unstable_by(f64::total_cmp);
        (others.len() > 2).then(|| others[others.len() / 2])
    };
    let than = if expected.is_some() { "what the slowest link gave" } else { "what the middle one gave" };
    let expected = expected.or_else(of_others);
    let mark = if expected.is_some_and(|all| rate < SHARE * all) { Mark::Look } else { Mark::Good };
    let slowest = if rates.len() > 1 { format!(", slowest {place}") } else { String::new() };
    let measured = format!("{rate:.2} GB/s busbw, sums right{slowest}");
    let text = expected.map_or_else(String::new, |all| format!("{all:.2} GB/s"));
    let row = Row { mark, expected: text, measured, expected_rate: expected, rate: Some(rate), ..row };
    told_slow(row, ran.iter().find(|one| one.place == place), than)
}

/// The better one of the buffers' bus bandwidths.
fn busbw(out: &str) -> Option<f64> {
    let size = objects(out).find(is("size"))?;
    let of = |buffer: &str| size[buffer]["busbw"].as_f64();
    of("registered").into_iter().chain(of("private")).reduce(f64::max)
}

fn trained(row: Row, ran: &[Ran]) -> Row {
    let lines = || ran.iter().flat_map(|one| one.out.lines());
    let word_after = |line: &str, name: &str| {
        line.split_whitespace().skip_while(|word| *word != name).nth(1).map(str::to_owned)
    };
    let expected = "equal weights".to_owned();
    let weights: Vec<String> = lines().filter_map(|line| word_after(line, "sha256")).collect();
    let Some(epoch) = lines().rfind(|line| line.contains(" epoch ")) else { return silent(row) };
    let accuracy =
        word_after(epoch, "accuracy").map_or_else(String::new, |text| format!(", accuracy {text}"));
    let loss = word_after(epoch, "loss").unwrap_or_default();
    let alike = weights.iter().all(|one| Some(one) == weights.first());
    let ranks = weights.len();
    let is_number = loss.parse::<f64>().is_ok_and(f64::is_finite);
    let (mark, what) = match (alike && ranks > 0, is_number) {
        (true, true) => (Mark::Good, format!("weights equal on {ranks} ranks")),
        (false, _) => (Mark::Bad, format!("weights differ between {ranks} ranks")),
        (_, false) => (Mark::Bad, "the loss is no number".to_owned()),
    };
    Row { mark, expected, measured: format!("{what}, loss {loss}{accuracy}"), ..row }
}

fn summed(row: Row, ran: &[Ran]) -> Row {
    let Some(head) = ran.iter().flat_map(|one| objects(&one.out)).find(is("head")) else {
        return silent(row);
    };
    let measured = format!("{} ranks by mpirun, sums right", head["ranks"]);
    Row { mark: Mark::Good, measured, ..row }
}

fn silent(row: Row) -> Row {
    Row { mark: Mark::Bad, measured: "it ended well and has printed no figure".to_owned(), ..row }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(place: &str, out: &str) -> Ran {
        let words = ["run", "-H", place, "--", "hvtui", "bench"].map(str::to_owned).to_vec();
        Ran { place: place.to_owned(), words, code: Some(0), out: out.to_owned(), err: String::new() }
    }

    fn sized(busbw: f64) -> String {
        format!(
            "[0] {{\"type\":\"head\",\"ranks\":2}}\n[0] {{\"type\":\"size\",\"private\":{{\"busbw\":{busbw}}}}}\n\
             [0] {{\"type\":\"total\",\"wrong\":0}}\n"
        )
    }

    #[test]
    fn hosts_that_are_not_reached_are_a_failure_with_the_reason_of_each() {
        let host = |number: u32| (format!("n{number}"), format!("n{number}: connection refused"));
        let row = not_reached(&[host(1), ("n2".to_owned(), "no route to host".to_owned())], 4);
        assert_eq!((row.step, row.place.as_str(), row.mark), ("doctor", "2 of 4 hosts", Mark::Bad));
        assert_eq!(row.words, ["n1: connection refused", "n2: no route to host"]);
        let many = not_reached(&(1..=6).map(host).collect::<Vec<_>>(), 6);
        assert_eq!((many.words.len(), many.words[4].as_str()), (5, "and 2 more"));
    }

    #[test]
    fn busy_hosts_are_named_beside_what_may_be_slow_for_them() {
        let n1 = HostId::from("n1");
        assert_eq!(busy(&n1, 5.9, 8), None);
        let busy: Vec<String> = busy(&n1, 14.2, 8).into_iter().collect();
        assert_eq!(busy, ["n1 (load 14 on 8 CPUs)"]);
        let row = |mark, expected_rate, rate| {
            Row { mark, expected_rate, rate, ..Row::left("link", String::new()) }.beside(&busy).words
        };
        let words = ["other processes kept CPUs busy before: n1 (load 14 on 8 CPUs)"];
        assert_eq!(row(Mark::Look, Some(1.0), Some(0.3)), words);
        assert_eq!(row(Mark::Good, None, Some(0.3)), words);
        assert!(row(Mark::Good, Some(1.0), Some(0.9)).is_empty(), "it is as fast as expected");
        assert!(row(Mark::Bad, None, None).is_empty(), "it has measured nothing");
    }

    #[test]
    fn a_link_is_held_against_its_interface() {
        let link = |from: &str, to: &str, rate: f64| {
            format!(
                "[0] {{\"type\":\"link\",\"from\":\"{from}\",\"to\":\"{to}\",\"rate\":{rate},\"nominal\":1.25}}\n"
            )
        };
        let out = [link("a", "b", 1.1), link("b", "c", 0.3), link("c", "a", 1.2)].concat();
        let row = judge("link", "3 hosts", &[ran("3 hosts", &out)], None);
        assert_eq!((row.mark, row.measured.as_str()), (Mark::Look, "0.30 GB/s, slowest from b to c"));
        assert_eq!((row.expected.as_str(), row.expected_rate), ("1.25 GB/s", Some(1.25)));
        assert_eq!(row.words, ["less than half of what the interface gives, from b to c"]);
        assert_eq!(row.again.as_deref(), Some("hvtui run -H '3 hosts' -- hvtui bench"));
        assert_eq!(judge("link", "a", &[ran("a", "")], None).mark, Mark::Bad, "figures are the point");
    }

    #[test]
    fn an_allreduce_is_held_against_the_link_and_memory_against_the_other_hosts() {
        let of = |rate, link| judge("tcp", "2 hosts", &[ran("2 hosts", &sized(rate))], link).mark;
        assert_eq!(
            (of(1.0, Some(1.1)), of(0.5, Some(1.1)), of(0.5, None)),
            (Mark::Good, Mark::Look, Mark::Good)
        );
        let head = "[0] {\"type\":\"head\",\"transport\":\"shm+tcp\"}\n";
        let mixed = judge("mixed", "2 hosts", &[ran("2 hosts", &format!("{head}{}", sized(0.5)))], Some(1.1));
        let words = "0.50 GB/s busbw, sums right, by shm+tcp";
        assert_eq!((mixed.mark, mixed.measured.as_str()), (Mark::Look, words));
        assert_eq!(mixed.words, ["less than half of what the slowest link gave"]);
        let fast = judge("tcp", "2 hosts", &[ran("2 hosts", &sized(1.0))], Some(1.1));
        assert!(fast.words.is_empty() && fast.again.is_none());
        let all = [ran("a", &sized(9.0)), ran("b", &sized(2.0)), ran("c", &sized(8.0))];
        let row = judge("shm", "each host", &all, Some(100.0));
        assert_eq!((row.mark, row.expected_rate), (Mark::Look, Some(8.0)));
        assert_eq!(row.measured, "2.00 GB/s busbw, sums right, slowest b");
        assert_eq!(row.words, ["less than half of what the middle one gave"]);
        assert_eq!(row.again.as_deref(), Some("hvtui run -H b -- hvtui bench"), "the slowest one");
        // a host with one GPU alone
        let all = [ran("a", &sized(9.0)), ran("b", &sized(0.0))];
        assert_eq!(judge("nccl", "each host", &all, None).measured, "9.00 GB/s busbw, sums right");
        let alone = judge("nccl", "a", &all[1..], None);
        assert_eq!((alone.mark, alone.rate), (Mark::Good, None));
        assert_eq!(alone.measured, "sums right; one rank alone moves nothing");
    }

    #[test]
    fn a_failure_has_its_last_words_and_the_command_that_repeats_it() {
        let failed = Ran {
            code: Some(1),
            out: "[1] RuntimeError: no route\n".to_owned(),
            err: "hvtui: run AB12  bench  2 ranks\nhvtui: rank 1 on b failed: exit 1\nhvtui: replay it: hvtui replay AB12\n"
                .to_owned(),
            ..ran("a,b", "")
        };
        let row = judge("tcp", "2 hosts", &[ran("a", &sized(1.0)), failed.clone()], None);
        assert_eq!((row.mark, row.measured.as_str()), (Mark::Bad, "failed: exit 1"));
        assert_eq!(row.words, ["[1] RuntimeError: no route", "rank 1 on b failed: exit 1"]);
        assert_eq!(row.again.as_deref(), Some("hvtui run -H 'a,b' -- hvtui bench"));
        let busy = judge("nccl", "a", &[Ran { code: Some(75), ..failed.clone() }], None);
        assert_eq!(busy.mark, Mark::Unknown);
        let slow = judge("nccl", "a", &[Ran { code: None, ..failed }], None);
        assert_eq!((slow.mark, slow.measured.as_str()), (Mark::Bad, "took too long: ended"));
    }

    #[test]
    fn ranks_that_train_end_with_the_same_weights() {
        let out = |second: &str| {
            format!(
                "[0] epoch 3 step 135 loss 0.5120 accuracy 0.8711  1231 samples/s\n[0] weights sha256 20cb\n\
                 [1] weights sha256 {second}\n"
            )
        };
        let row = judge("train", "2 hosts", &[ran("2 hosts", &out("20cb"))], None);
        assert_eq!(
            (row.mark, row.measured.as_str()),
            (Mark::Good, "weights equal on 2 ranks, loss 0.5120, accuracy 0.8711")
        );
        assert_eq!(judge("train", "a", &[ran("a", &out("77"))], None).mark, Mark::Bad);
        assert_eq!(
            judge("train", "a", &[ran("a", &out("20cb").replace("0.5120", "NaN"))], None).mark,
            Mark::Bad
        );
        let mpi = judge("mpirun", "a", &[ran("a", &sized(1.0))], None);
        assert_eq!(mpi.measured, "2 ranks by mpirun, sums right");
    }
}

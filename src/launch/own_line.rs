//! The lines of the frameworks' own launchers, written anew: to be shown beside a plan, and to be executed where the
//! launcher is wanted. Pure.

/// torchrun on one of the hosts. PyTorch before 2.0 knows its options with underscores alone.
#[derive(Debug, Clone, Copy)]
pub struct Torchrun<'a> {
    /// The words that call it.
    pub program: &'a [String],
    /// Ranks on this host.
    pub ranks: usize,
    /// This host's number, of how many.
    pub node: (usize, usize),
    /// Where the hosts meet: the address, and the port where it is known. A single host needs none.
    pub meet: Option<(&'a str, Option<&'a str>)>,
    /// How often it starts all ranks again.
    pub restarts: u32,
    /// Further options.
    pub options: &'a [String],
    /// The job's own command.
    pub command: &'a [String],
}

impl Torchrun<'_> {
    /// The line's words.
    pub fn words(&self) -> Vec<String> {
        let mut words = self.program.to_vec();
        words.push(format!("--nproc_per_node={}", self.ranks));
        let (node, nodes) = self.node;
        if let Some((address, port)) = self.meet {
            words.extend([format!("--nnodes={nodes}"), format!("--node_rank={node}")]);
            words.push(format!("--master_addr={address}"));
            words.extend(port.map(|port| format!("--master_port={port}")));
        } else {
            words.push("--standalone".to_owned());
        }
        if self.restarts > 0 {
            words.push(format!("--max_restarts={}", self.restarts));
        }
        words.extend(self.options.iter().cloned());
        words.extend(after_python(self.command));
        words
    }
}

/// A command as torchrun takes it, which starts Python itself, unbuffered.
fn after_python(command: &[String]) -> Vec<String> {
    let is_python = command.first().is_some_and(|program| {
        let name = program.rsplit('/').next().unwrap_or(program);
        name.strip_prefix("python").is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'))
    });
    let rest = match command {
        [_, flag, rest @ ..] if is_python && flag == "-u" => rest,
        [_, rest @ ..] if is_python => rest,
        _ => &[],
    };
    match rest.first() {
        Some(next) if next == "-m" || !next.starts_with('-') => rest.to_vec(),
        _ => std::iter::once("--no_python".to_owned()).chain(command.iter().cloned()).collect(),
    }
}

/// `horovodrun -np 4 -H a:2,b:2`, and the same of mpirun: `hosts` with their ranks.
pub fn on_hosts(program: &str, hosts: &[(String, usize)]) -> Vec<String> {
    let ranks: usize = hosts.iter().map(|(_, ranks)| ranks).sum();
    let list: Vec<String> = hosts.iter().map(|(host, ranks)| super::host_list::entry(host, ranks)).collect();
    [program, "-np", &ranks.to_string(), "-H", &list.join(",")].map(str::to_owned).into()
}

/// horovodrun on the first of `hosts`, with its Gloo controller.
pub fn horovodrun(
    hosts: &[(String, usize)],
    port: Option<u16>,
    interface: Option<&str>,
    start_timeout_s: Option<u32>,
    command: &[String],
) -> Vec<String> {
    let mut words = on_hosts("horovodrun", hosts);
    // one port for all of them is all that it knows
    words.extend(port.iter().flat_map(|port| ["-p".to_owned(), port.to_string()]));
    words.extend(interface.iter().flat_map(|name| ["--network-interface".to_owned(), (*name).to_owned()]));
    words.extend(start_timeout_s.iter().flat_map(|s| ["--start-timeout".to_owned(), s.to_string()]));
    words.push("--gloo".to_owned());
    words.extend(command.iter().cloned());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(program: &str, node: (usize, usize), command: &str) -> String {
        let split = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let (program, command) = (split(program), split(command));
        let torchrun = Torchrun {
            program: &program,
            ranks: 2,
            node,
            meet: (node.1 > 1).then_some(("10.0.0.1", Some("29500"))),
            restarts: 0,
            options: &[],
            command: &command,
        };
        torchrun.words().join(" ")
    }

    #[test]
    fn torchrun_starts_python_itself_and_other_programs_as_they_are() {
        let alone = "torchrun --nproc_per_node=2 --standalone";
        assert_eq!(line("torchrun", (0, 1), "python3 -u t.py --lr 1"), format!("{alone} t.py --lr 1"));
        assert_eq!(line("torchrun", (0, 1), "python -m a.b"), format!("{alone} -m a.b"));
        assert_eq!(line("torchrun", (0, 1), "python -c x"), format!("{alone} --no_python python -c x"));
        assert_eq!(line("torchrun", (0, 1), "./train"), format!("{alone} --no_python ./train"));
        assert_eq!(
            line("python -m torch.distributed.run", (1, 2), "python t.py"),
            "python -m torch.distributed.run --nproc_per_node=2 --nnodes=2 --node_rank=1 --master_addr=10.0.0.1 \
             --master_port=29500 t.py"
        );
    }

    #[test]
    fn horovodrun_names_each_host_with_its_ranks() {
        let hosts = [("a".to_owned(), 2), ("b".to_owned(), 1)];
        let words =
            horovodrun(&hosts, Some(9435), Some("eth0"), None, &["python".to_owned(), "t.py".to_owned()]);
        assert_eq!(
            words.join(" "),
            "horovodrun -np 3 -H a:2,b:1 -p 9435 --network-interface eth0 --gloo python t.py"
        );
    }
}

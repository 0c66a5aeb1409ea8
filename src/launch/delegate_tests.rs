use super::*;
use crate::launch::paste::read_text;
use crate::launch::pasted_request;

fn asked(line: &str, wanted: bool) -> crate::launch::request::LaunchRequest {
    pasted_request::request(&read_text(line).unwrap().unwrap(), None, None, wanted, |_| None)
}

fn delegated(line: &str, wanted: bool) -> Option<(String, String, String)> {
    let launcher = asked(line, wanted).options.delegate?;
    Some((launcher.line.join(" "), launcher.hosts.join(","), launcher.program.join(" ")))
}

#[test]
fn a_line_that_is_not_understood_keeps_its_ranks_where_they_can_be_counted() {
    let line = "mpirun -np 3 -H a:2,b:2 --rankfile x python t.py";
    let request = asked(line, false);
    assert_eq!(delegated(line, false), Some((line.to_owned(), "a,b".to_owned(), String::new())));
    assert!(request.single && request.kind == Some(JobKind::Mpi), "{request:?}");
    let hosts = vec![(HostId::from("a"), 2), (HostId::from("b"), 2)];
    assert_eq!(request.place, PlacementSpec::Hosts { hosts, np: None }, "each host of the line is used");
    assert!(
        request.remarks.iter().any(|remark| remark.starts_with("not understood: --rankfile x; the line is"))
    );
    assert!(
        request.remarks.iter().any(|remark| remark.contains("mpirun decides by its mapping")),
        "{request:?}"
    );
    let bare = vec![(HostId::from("a"), 1), (HostId::from("b"), 1)];
    let request = asked("mpirun -np 2 -H a,b --rankfile x python t.py", false);
    assert_eq!(request.place, PlacementSpec::Hosts { hosts: bare, np: None }, "as Open MPI counts");
    let here = asked("strace mpirun -np 2 python t.py", false);
    assert_eq!(here.place, PlacementSpec::Nodes { nodes: 1, each: Some(2) }, "of one host, as mpirun does");
    assert_eq!(here.options.delegate.unwrap().line.join(" "), "strace mpirun -np 2 python t.py");
}

#[test]
fn mpirun_of_an_environment_starts_its_ranks_and_one_of_conda_is_hvtuis() {
    let uv = asked("uv run mpirun -np 2 python t.py", false);
    assert_eq!(uv.place, PlacementSpec::Nodes { nodes: 1, each: Some(2) });
    assert_eq!(uv.options.delegate.unwrap().line.join(" "), "uv run mpirun -np 2 python t.py");
    assert_eq!(uv.command.join(" "), "uv run python t.py");
    let conda = asked("conda run -n x mpirun -np 2 python t.py", false);
    assert!(conda.options.delegate.is_none() && !conda.single, "{conda:?}");
    assert_eq!(conda.options.environment.conda.as_deref(), Some("x"));
    assert_eq!((conda.kind, conda.command.join(" ")), (Some(JobKind::Mpi), "python t.py".to_owned()));
}

#[test]
fn ranks_of_several_programs_are_added_up() {
    let request = asked("mpirun -np 1 ./a : -np 3 ./b : ./c", false);
    assert_eq!(request.place, PlacementSpec::Nodes { nodes: 1, each: Some(5) });
}

#[test]
fn horovodrun_takes_every_slot_of_its_hosts() {
    let request = asked("horovodrun -np 2 -H a:2,b:2 --config-file x python t.py", false);
    let hosts = vec![(HostId::from("a"), 2), (HostId::from("b"), 2)];
    assert_eq!(request.place, PlacementSpec::Hosts { hosts, np: None });
    assert!(request.remarks.iter().any(|remark| remark.contains("which of the 4 slots")), "{request:?}");
    let script = asked("horovodrun -np 2 --host-discovery-script x python t.py", false);
    assert!(script.options.delegate.is_none() && script.single, "{script:?}");
}

#[test]
fn torchs_launcher_is_called_as_it_was_and_gets_what_was_not_understood() {
    let line = "python3 -m torch.distributed.run --nproc-per-node=2 --rdzv-conf a=1 t.py";
    let launcher = asked(line, false).options.delegate.unwrap();
    assert_eq!(launcher.program.join(" "), "python3 -m torch.distributed.run");
    assert_eq!(launcher.options.join(" "), "--rdzv-conf a=1");
    let launcher = asked("torchrun --nproc-per-node=2 -m a.b", true).options.delegate.unwrap();
    assert_eq!((launcher.program.join(" "), launcher.options.len()), ("torchrun".to_owned(), 0));
    for opaque in ["torchrun --nnodes=1:2 --nproc-per-node=2 t.py", "strace torchrun --nproc-per-node=2 t.py"]
    {
        assert!(asked(opaque, false).options.delegate.is_none(), "{opaque}");
    }
}

#[test]
fn a_line_that_is_understood_is_ours_unless_its_launcher_is_wanted() {
    let line = "horovodrun -np 2 -H a:2 python t.py";
    assert_eq!(delegated(line, false), None);
    assert_eq!(delegated(line, true), Some((line.to_owned(), "a".to_owned(), String::new())));
    assert_eq!(delegated("horovodrun --check-build", true), None);
}

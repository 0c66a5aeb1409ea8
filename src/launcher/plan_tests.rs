use super::super::fixtures::{cpu_host, gpu_host, request};
use super::super::inventory::Holder;
use super::*;
use crate::domain::host::InterfaceAddress;
use crate::domain::run::JobKind;
use crate::launch::preview::preview;
use crate::launch::request::PlacementSpec;

fn planned(request: &LaunchRequest, hosts: &[HostFacts]) -> LaunchPlan {
    plan(request, hosts, RunId::new(1_795_000_000_000, 7), Stamp(5)).unwrap()
}

#[test]
fn a_spec_is_named_and_typed_by_its_command() {
    let hosts = [cpu_host("local", 2)];
    let LaunchPlan { spec, .. } =
        planned(&request("hvtui train digits", PlacementSpec::Count(Some(2))), &hosts);
    assert_eq!((spec.name.as_str(), spec.kind, spec.world()), ("digits", JobKind::Native, 2));
    let mut named = request("python train.py", PlacementSpec::Count(None));
    named.name = Some("mnist".to_owned());
    let LaunchPlan { spec, .. } = planned(&named, &hosts);
    assert_eq!((spec.name.as_str(), spec.kind, spec.created), ("mnist", JobKind::Plain, Stamp(5)));
}

#[test]
fn hosts_that_are_passed_over_are_told_with_the_reason() {
    let absent = |name: &str| HostFacts { absent: Some(format!("{name}: not trusted")), ..cpu_host(name, 2) };
    let hosts = [absent("a"), cpu_host("b", 2), absent("c")];
    let remarks = |place: PlacementSpec, hosts: &[HostFacts]| planned(&request("true", place), hosts).remarks;
    let told = "a is passed over: not trusted";
    assert_eq!(remarks(PlacementSpec::Count(Some(2)), &hosts), [told], "c would not have been reached");
    assert_eq!(remarks(PlacementSpec::Count(None), &hosts), [told, "c is passed over: not trusted"]);
    let nodes = PlacementSpec::Nodes { nodes: 1, each: Some(2) };
    assert_eq!(remarks(nodes, &hosts), [told], "c would not have been reached");
    let named = PlacementSpec::Hosts { hosts: vec![("b".into(), 1)], np: None };
    assert!(remarks(named, &hosts).is_empty());
    let many = ["a", "c", "d", "e"].map(absent).into_iter().chain([cpu_host("b", 2)]).collect::<Vec<_>>();
    assert_eq!(
        remarks(PlacementSpec::Count(Some(2)), &many),
        ["a, c, d and 1 more are passed over: they are not up; `hvtui hosts check` says why"]
    );
}

#[test]
fn what_a_line_may_not_have_meant_is_told() {
    let remarks = |command: &str, place: PlacementSpec, hosts: &[HostFacts]| {
        let mut asked = request(command, place);
        asked.kind = Some(JobKind::Plain);
        planned(&asked, hosts).remarks
    };
    let two = || PlacementSpec::Count(Some(2));
    let cpus = [cpu_host("a", 4)];
    let told = remarks("sbatch job.sh", two(), &cpus);
    assert!(told.len() == 1 && told[0].starts_with("`sbatch` is started once per rank: 2 times"), "{told:?}");
    assert!(remarks("sbatch job.sh", PlacementSpec::Count(Some(1)), &cpus).is_empty());

    let mixed = [gpu_host("g", 1), cpu_host("c", 4)];
    let told = remarks("true", two(), &mixed);
    assert!(told.len() == 1 && told[0].starts_with("the ranks take CPU slots: "), "{told:?}");
    assert!(remarks("true", PlacementSpec::Count(Some(1)), &mixed).is_empty());
    assert!(remarks("true", two(), &cpus).is_empty(), "no host has a GPU");

    let list = |slots| PlacementSpec::Hosts {
        hosts: ["a", "b"].map(|host| (HostId::from(host), slots)).to_vec(),
        np: Some(2),
    };
    let pair = [cpu_host("a", 2), cpu_host("b", 2)];
    let told = "b gets no rank: the hosts before have slots for all 2; to share them out write a:1,b:1.";
    assert_eq!(remarks("true", list(ALL_SLOTS), &pair), [told]);
    assert!(remarks("true", list(2), &pair).is_empty(), "the line says how many each gets");
    let odd = PlacementSpec::Hosts {
        hosts: ["a", "b"].map(|host| (HostId::from(host), ALL_SLOTS)).to_vec(),
        np: Some(3),
    };
    let told = remarks("true", odd, &[cpu_host("a", 4), cpu_host("b", 2)]);
    assert!(told.len() == 1 && told[0].ends_with(" write a:2,b:1."), "room for all 3: {told:?}");

    let mut full = gpu_host("full", 1);
    let words = "leased by li".to_owned();
    full.busy.insert(0, Holder { who: words.clone(), words, named: true, own: false, gone: false });
    let free = |np, hosts: &[&str]| PlacementSpec::Hosts {
        hosts: hosts.iter().map(|host| (HostId::from(*host), FREE_SLOTS)).collect(),
        np,
    };
    let hosts = [full, gpu_host("g", 1)];
    let told = ["full has no free slot and is left out."];
    assert_eq!(remarks("true", free(None, &["full", "g"]), &hosts), told);
    assert!(remarks("true", free(Some(1), &["full", "g"]), &hosts).is_empty(), "a number of ranks is there");
    assert!(remarks("true", free(None, &["g"]), &hosts).is_empty());

    let mut broken = cpu_host("broken", 4);
    (broken.driver_fails, broken.no_gpu) = (true, Some("NVML failed (x)".to_owned()));
    let told = ["broken is passed over: NVML failed (x)"];
    assert_eq!(remarks("true", PlacementSpec::Count(None), &[broken, gpu_host("g", 1)]), told);
}

#[test]
fn a_time_for_a_rendezvous_of_which_nothing_tells_is_said_to_have_no_effect() {
    let hosts = [cpu_host("local", 2)];
    let remarks = |kind: JobKind, ranks: u32, seconds: Option<u32>| {
        let mut asked = request("python t.py", PlacementSpec::Count(Some(ranks)));
        asked.kind = Some(kind);
        asked.options.start_timeout_s = seconds;
        planned(&asked, &hosts).remarks
    };
    let told = "--start-timeout 3 has no effect: ranks of kind torch do not tell when they are connected; give the program \
                a timeout, as torch's init_process_group(timeout=…).";
    assert_eq!(remarks(JobKind::Torch, 2, Some(3)), [told]);
    assert!(remarks(JobKind::Torch, 2, None).is_empty());
    let told = "--start-timeout 3 has no effect: one rank waits for no other.";
    assert_eq!(remarks(JobKind::Plain, 1, Some(3)), [told]);
    assert!(remarks(JobKind::Plain, 1, None).is_empty());
    assert!(remarks(JobKind::Native, 2, Some(3)).is_empty(), "its ranks tell");
}

#[test]
fn ranks_that_are_split_over_hosts_without_being_asked_to_are_told() {
    let address = |host, last| HostFacts { ssh_server_address: Some([10, 0, 0, last].into()), ..host };
    let hosts = [address(gpu_host("a", 2), 1), address(gpu_host("b", 2), 2)];
    let remarks = |place: PlacementSpec, hosts: &[HostFacts]| planned(&request("true", place), hosts).remarks;
    let told = ["split over 2 hosts: no host has 4 free GPUs that are not at risk."];
    assert_eq!(remarks(PlacementSpec::Count(Some(4)), &hosts), told);
    assert!(remarks(PlacementSpec::Count(Some(2)), &hosts).is_empty());
    assert!(remarks(PlacementSpec::Count(None), &hosts).is_empty(), "each slot was asked for");
    let named = PlacementSpec::Hosts { hosts: vec![("a".into(), 1), ("b".into(), 1)], np: None };
    assert!(remarks(named, &hosts).is_empty());
    let cpus = [address(cpu_host("a", 1), 1), address(cpu_host("b", 1), 2)];
    let told = ["split over 2 hosts: no host has 2 free CPU slots."];
    assert_eq!(remarks(PlacementSpec::Count(Some(2)), &cpus), told);
    let free =
        PlacementSpec::Free { ranks: 2, per_host: None, filter: crate::domain::filter::Filter::default() };
    assert_eq!(remarks(free, &cpus), told);
}

#[test]
fn a_plan_that_stood_on_a_form_is_a_run_of_the_moment_it_was_started_in() {
    let hosts = [cpu_host("local", 2)];
    let begun = planned(&request("true", PlacementSpec::Count(None)), &hosts).asked_for(Stamp(9));
    let whole = begun.hosts[0].run_spec.as_ref().unwrap();
    assert_eq!((begun.spec.created, whole.created), (Stamp(9), Stamp(9)));
}

#[test]
fn a_launch_counts_before_the_host_and_hvtui_before_both() {
    let mut host = cpu_host("local", 1);
    host.workdir = Some("/srv".to_owned());
    host.env = BTreeMap::from([
        ("A".into(), "host".into()),
        ("B".into(), "host".into()),
        ("RANK".into(), "9".into()),
    ]);
    let mut asked = request("true", PlacementSpec::Count(None));
    asked.env = BTreeMap::from([("B".into(), "run".into())]);
    let LaunchPlan { hosts: runs, .. } = planned(&asked, std::slice::from_ref(&host));
    let rank = &runs[0].ranks[0];
    assert_eq!(
        (rank.env["A"].as_str(), rank.env["B"].as_str(), rank.env["RANK"].as_str()),
        ("host", "run", "0")
    );
    assert_eq!(rank.cwd.as_deref(), Some("/srv"));
    asked.workdir = Some("~/train".to_owned());
    let LaunchPlan { hosts: runs, .. } = planned(&asked, &[host]);
    assert_eq!(runs[0].ranks[0].cwd.as_deref(), Some("~/train"));
}

#[test]
fn ranks_of_a_line_that_hides_each_gpu_see_none_and_again_none() {
    let list = vec![(HostId::from("a"), 2)];
    let mut asked = request("python train.py", PlacementSpec::Hosts { hosts: list, np: None });
    asked.gpu_mask = Some(String::new());
    let LaunchPlan { spec, hosts, remarks, .. } = planned(&asked, &[cpu_host("a", 4)]);
    assert!(hosts[0].ranks.iter().all(|rank| rank.env["CUDA_VISIBLE_DEVICES"].is_empty()));
    assert_eq!(remarks, ["CUDA_VISIBLE_DEVICES hides all GPUs: the ranks run on CPU slots of a."]);
    let again = LaunchRequest::again(&spec);
    assert!(again.hides_gpus() && again.env.is_empty(), "{again:?}");
    assert_eq!(again.place, asked.place, "by number they would be GPUs");
}

#[test]
fn the_preview_shows_every_rank() {
    let address = |host, last| HostFacts { ssh_server_address: Some([10, 0, 0, last].into()), ..host };
    let hosts = [address(gpu_host("gpu-a", 2), 1), address(cpu_host("cpu", 1), 2)];
    let named = PlacementSpec::Hosts { hosts: vec![("gpu-a".into(), 2), ("cpu".into(), 1)], np: None };
    let mut asked = request("python train.py", named);
    asked.command.push("two words \u{1b}[31m".to_owned());
    asked.env = BTreeMap::from([("NOTE".into(), "it's".into())]);
    let plan = planned(&asked, &hosts);
    let (spec, runs) = (&plan.spec, &plan.hosts);
    assert!(runs.iter().all(|run| run.grace_ms == GRACE_MS && run.run == spec.id && run.name == "train.py"));
    insta::assert_snapshot!(preview(&plan).join("\n"));
}

#[test]
fn what_may_change_the_mind_stands_above_the_plan() {
    let mut asked = request("sbatch job.sh", PlacementSpec::Count(Some(2)));
    asked.kind = Some(JobKind::Plain);
    let lines = preview(&planned(&asked, &[cpu_host("a", 4)]));
    let at = |start: &str| lines.iter().position(|line| line.trim().starts_with(start)).unwrap();
    assert_eq!((at("to know:"), at("⚠ `sbatch` is started once per rank")), (1, 2), "{lines:#?}");
    assert_eq!(at("a: 2 ranks"), 3, "{lines:#?}");
    asked.place = PlacementSpec::Count(Some(1));
    let alone = preview(&planned(&asked, &[cpu_host("a", 4)]));
    assert!(!alone.iter().any(|line| line.contains("to know") || line.contains("per rank")), "{alone:#?}");
}

#[test]
fn the_preview_shows_what_the_python_hooks_get_on_each_host() {
    let host =
        |name, last| HostFacts { ssh_server_address: Some([10, 0, 0, last].into()), ..cpu_host(name, 1) };
    let (on, off) = (host("a", 1), HostFacts { python_hooks: false, ..host("b", 2) });
    let list = ["a", "b"].map(|host| (host.into(), 1)).to_vec();
    let mut asked = request("python train.py", PlacementSpec::Hosts { hosts: list, np: None });
    let shown = |asked: &_| {
        let plan = planned(asked, &[on.clone(), off.clone()]);
        let lines = preview(&plan).into_iter().map(|line| line.trim().to_owned());
        let wanted = ["PYTHONPATH", "HVTUI_RANK", "HVTUI_PYTHON_HOOKS", "<hooks>", "b: "];
        let lines: Vec<_> = lines.filter(|line| wanted.iter().any(|start| line.starts_with(start))).collect();
        (plan.spec.options.hooks_off, lines)
    };
    let unset = "PYTHONPATH=<hooks>, then what the host sets";
    let are =
        "<hooks>: the folder of the Python hooks on each host, python/HASH in hvtui's state folder there";
    let number = |rank| format!("HVTUI_RANK={rank} unless the host sets it");
    assert_eq!(
        shown(&asked),
        (vec!["b".into()], [unset, &number(0), "b: 1 rank", are].map(str::to_owned).to_vec())
    );
    asked.options.python_hooks = Some(PythonHooks::Debug);
    asked.env = BTreeMap::from([("PYTHONPATH".into(), "/opt/my lib".into())]);
    let own = "PYTHONPATH=<hooks>:'/opt/my lib'";
    let debug = "HVTUI_PYTHON_HOOKS=debug unless the host sets it";
    let lines = [own, &number(0), debug, "b: 1 rank", own, &number(1), debug, are];
    assert_eq!(shown(&asked), (vec![], lines.map(str::to_owned).to_vec()));
    asked.options.python_hooks = Some(PythonHooks::Off);
    let own = "PYTHONPATH='/opt/my lib'";
    assert_eq!(
        shown(&asked),
        (vec!["a".into(), "b".into()], [own, "b: 1 rank", own].map(str::to_owned).to_vec())
    );
}

#[test]
fn nccl_and_gloo_are_told_the_interface_that_the_other_hosts_reach() {
    let host = |name: &str, last: u8| {
        let address = |interface: &str, ip: [u8; 4]| InterfaceAddress {
            interface: interface.to_owned(),
            address: ip.into(),
        };
        HostFacts {
            addresses: vec![address("docker0", [172, 17, 0, 1]), address("ib0", [10, 9, 0, last])],
            interface: Some("ib0".to_owned()),
            ..gpu_host(name, 1)
        }
    };
    let told = |hosts: &[HostFacts], env: &[(&str, &str)]| {
        let mut asked = request("true", PlacementSpec::Count(None));
        asked.env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let planned = plan(&asked, hosts, RunId::new(1, 1), Stamp(1)).unwrap();
        let env = &planned.hosts[0].ranks[0].on_host(|_| false).env;
        ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"].map(|name| env.get(name).cloned())
    };
    let two = [host("a", 1), host("b", 2)];
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(told(&two, &[]), [some("=ib0"), some("ib0")]);
    assert_eq!(told(&two, &[("NCCL_SOCKET_IFNAME", "^lo")]), [some("^lo"), some("ib0")]);
    assert_eq!(told(&two[..1], &[]), [None, None], "one host needs no network");
}

#[test]
fn every_client_leases_the_gpus_of_its_hosts_in_the_same_order() {
    let host = |name: &str, boot: &str| HostFacts {
        machine: (boot.to_owned(), String::new()),
        ssh_server_address: Some([10, 0, 0, 1].into()),
        ..gpu_host(name, 1)
    };
    let order = |hosts: [HostFacts; 3]| {
        let asked = request("true", PlacementSpec::Count(None));
        let planned = plan(&asked, &hosts, RunId::new(1, 1), Stamp(1)).unwrap();
        assert_eq!(planned.hosts.len(), 3);
        let shares = planned.in_lease_order().into_iter();
        shares.map(|share| share.host.to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(order([host("a", "boot-3"), host("b", "boot-1"), host("c", "boot-2")]), "b c a");
    assert_eq!(order([host("x", "boot-2"), host("y", "boot-3"), host("z", "boot-1")]), "z x y");
}

#[test]
fn gpus_at_risk_are_named_by_index() {
    let mut host = gpu_host("a", 12);
    for index in [2, 10] {
        host.at_risk.insert(index, "ecc errors".to_owned());
    }
    let plan = planned(&request("true", PlacementSpec::Count(None)), &[host]);
    assert_eq!(
        plan.remarks.iter().find(|remark| remark.contains("at risk")).map(|remark| &**remark),
        Some(
            "a: GPUs 2 (ecc errors), 10 (ecc errors) are at risk: the run may fail there or learn from wrong numbers."
        )
    );
}

#[test]
fn a_named_host_that_fills_up_its_gpus_with_mig_slices_says_so() {
    let mut host = gpu_host("a", 3);
    host.slots.push(Slot::Gpu { index: 400, uuid: GpuUuid::from("MIG-a-400") });
    let mixed = |count| {
        let at = PlacementSpec::Hosts { hosts: vec![(HostId::from("a"), count)], np: None };
        let plan = planned(&request("true", at), std::slice::from_ref(&host));
        plan.remarks.into_iter().find(|remark| remark.contains("MIG slice"))
    };
    let words = "a: 3 GPUs and 1 MIG slice (400), for it has too few free GPUs that are whole.";
    assert_eq!(mixed(4).as_deref(), Some(words));
    assert_eq!(mixed(3), None);
}

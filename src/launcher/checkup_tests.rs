use super::*;
use crate::domain::doctor::Started;
use crate::domain::gpu::event::{GpuEvent, Happening};
use crate::domain::gpu::{GpuInfo, GpuSample};
use crate::domain::preflight::Mark;

fn info(address: &str) -> Arc<HostInfo> {
    let info = serde_json::json!({
        "hostname": "host", "kernel": "6.1.0", "arch": "x86_64", "user": "li", "cpus": 8,
        "memory_total": null, "boot_id": "b", "agent_version": "0",
        "addresses": [{"interface": "eth0", "address": address}], "ssh_server_address": null,
        "ssh_client_address": null, "gpus": [], "gpu_absence": null, "driver": null,
        "cuda_driver": null, "nccl": null,
    });
    Arc::new(serde_json::from_value(info).unwrap())
}

#[test]
fn what_needs_the_others_is_asked_when_all_have_come() {
    let (a, b, c) = (HostId::from("a"), HostId::from("b"), HostId::from("c"));
    let only = ["shm".to_owned(), "reach".to_owned(), "driver".to_owned()];
    let mut checkup = Checkup::new(7, [a.clone(), b.clone(), c.clone()], &only);
    checkup.is_up(&a, info("10.0.0.1"));
    let first = checkup.questions();
    assert_eq!(
        (first.len(), &first[0].ask.checks[..]),
        (1, &["shm".to_owned()][..]),
        "no facts are asked for"
    );
    assert!(checkup.questions().is_empty(), "each is asked once");
    checkup.is_up(&b, info("10.0.0.2"));
    checkup.is_down(&c, "refused".to_owned());
    // each opens a door first, and behind a gateway has another port of ssh than the hosts file says
    let doors = checkup.questions();
    assert_eq!((doors.len(), &doors[0].ask.checks[..]), (2, &["door".to_owned()][..]));
    assert_eq!(doors[1].ask.checks, ["shm", "door"]);
    assert!(checkup.awaits_doors());
    for (host, found) in [(&a, Some(serde_json::json!({"port": 40_001, "ssh_port": 22}))), (&b, None)] {
        assert!(checkup.questions().is_empty(), "none is tried before all have told");
        checkup.told(host, Checked { ask: 7, check: "door".to_owned(), found, why: None });
    }
    let second = checkup.questions();
    assert_eq!(second.len(), 2);
    assert_eq!((&second[0].ask.checks[..], &second[0].ask.peers[0].host), (&["reach".to_owned()][..], &b));
    let of_a = &second[1].ask.peers[0];
    assert_eq!((of_a.door, of_a.port, second[0].ask.peers[0].door), (Some(40_001), Some(22), None));
    assert_eq!(of_a.name.as_deref(), Some("host"), "as its own system calls it");
    assert!(!checkup.is_over());
    for question in first.into_iter().chain(doors).chain(second) {
        for check in question.ask.checks.into_iter().filter(|check| check != "door") {
            let of_reach = serde_json::json!({"ways": [], "wall": {}});
            let of_shm = serde_json::json!({"total": 1_u64 << 40, "free": 1_u64 << 40});
            let found = Some(if check == "shm" { of_shm } else { of_reach });
            checkup.told(&question.host, Checked { ask: 7, check, found, why: None });
        }
    }
    assert!(checkup.is_over());
    let matrix = checkup.matrix();
    assert_eq!(matrix.rows[0].verdicts[&c].mark, Mark::Bad, "{matrix:?}");
    assert_eq!((matrix.count(Mark::Bad), matrix.checks(Mark::Bad), matrix.due()), (1, 1, 0));
}

#[test]
fn a_launch_tells_its_own_working_directory() {
    let (a, b) = (HostId::from("a"), HostId::from("b"));
    let context = || HostContext { workdir: Some("/data".to_owned()), ..HostContext::default() };
    let contexts: Contexts = [(a.clone(), context()), (b.clone(), context())].into();
    let asked = |own: BTreeMap<HostId, Option<String>>| {
        let checkup = Checkup::for_launch(1, [a.clone(), b.clone()], &["disk"]);
        let mut checkup = checkup.reached_as(&contexts).working_in(own);
        checkup.is_up(&a, info("10.0.0.1"));
        checkup.is_up(&b, info("10.0.0.2"));
        checkup.questions().into_iter().map(|question| question.ask.workdir).collect::<Vec<_>>()
    };
    let own = || Some("~/train".to_owned());
    assert_eq!(asked([(a.clone(), own()), (b.clone(), None)].into()), [own(), None]);
    assert_eq!(asked(BTreeMap::new()), [context().workdir, context().workdir]);
}

#[test]
fn what_happened_to_a_gpu_before_the_look_is_judged() {
    let a = HostId::from("a");
    let gpu = GpuInfo::unknown(0);
    let what = Happening::Xid { xid: 48 };
    let event = GpuEvent { index: 0, uuid: gpu.uuid.clone(), what, count: 1, t: None };
    let mut events = GpuEvents::default();
    let health = |events: &GpuEvents| {
        let mut checkup = Checkup::new(7, [a.clone()], &["health".to_owned()]);
        let described = HostInfo { gpus: vec![gpu.clone()], ..HostInfo::clone(&info("10.0.0.1")) };
        checkup.is_up(&a, Arc::new(described));
        let sample = serde_json::json!({
            "cpu_percent": null, "memory_used": null, "load": null, "net_rx": null, "net_tx": null,
            "gpus": [GpuSample::unknown(0)],
        });
        checkup.sampled(&a, &Arc::new(serde_json::from_value(sample).unwrap()));
        checkup.knows_events(&a, events, Stamp(60_000_000));
        let matrix = checkup.matrix();
        let row = matrix.rows.iter().find(|row| row.check == "health").unwrap();
        (row.verdicts[&a].mark, row.verdicts[&a].evidence.clone())
    };
    assert_eq!(health(&events).0, Mark::Good);
    events.add(Stamp(0), &event);
    assert_eq!(health(&events), (Mark::Bad, "GPU 0: xid 48".to_owned()));
}

#[test]
fn a_host_that_comes_back_is_asked_again_for_what_it_has_not_told() {
    let a = HostId::from("a");
    let mut checkup = Checkup::new(1, [a.clone()], &["shm".to_owned(), "disk".to_owned()]);
    checkup.is_up(&a, info("10.0.0.1"));
    assert_eq!(checkup.questions()[0].ask.checks, ["disk", "shm"]);
    checkup.told(&a, Checked { ask: 1, check: "disk".to_owned(), found: None, why: None });
    checkup.is_down(&a, "lost".to_owned());
    assert!(checkup.is_over());
    checkup.is_up(&a, info("10.0.0.1"));
    assert_eq!(checkup.questions()[0].ask.checks, ["shm"]);
}

#[test]
fn how_ssh_reaches_a_host_is_that_of_the_hosts_file() {
    let host = |name: &str, port| HostConfig {
        id: HostId::from(name),
        address: crate::config::Address::Ssh(format!("{name}.lab")),
        user: Some("ml".to_owned()),
        port,
        ..HostConfig::this_machine()
    };
    let configs = [host("a", None), host("b", Some(2222))];
    let ids = configs.iter().map(|config| config.id.clone());
    let mut checkup = Checkup::new(1, ids, &["logins".to_owned()]).reached_as(&contexts(&configs));
    let (a, b) = (&configs[0].id, &configs[1].id);
    checkup.is_up(a, info("10.0.0.1"));
    checkup.is_up(b, info("10.0.0.2"));
    checkup.questions();
    // one that hangs keeps no other one waiting
    checkup.go_on_without_doors();
    let peer = &checkup.questions()[0].ask.peers[0];
    assert_eq!((&peer.host, peer.user.as_deref(), peer.port), (b, Some("ml"), Some(2222)));
    checkup.is_down(b, "refused".to_owned());
    let remedy = checkup.matrix().rows[0].verdicts[b].remedy.clone().unwrap();
    assert_eq!(remedy, "ssh -v -p 2222 ml@b.lab true, then: hvtui hosts check b");
}

#[test]
fn of_a_script_that_is_known_here_names_of_modules_are_told_and_nothing_else() {
    let a = HostId::from("a");
    let of = |script: Option<&str>, code: &str| {
        let starts = Started {
            program: "python3".to_owned(),
            script: script.map(str::to_owned),
            imports: ["torch", "horovod.torch"].map(str::to_owned).to_vec(),
            ..Started::default()
        };
        let inside = RunInside { starts: Some(starts), ..RunInside::default() };
        let inside = InImage { checks: vec!["image"], hosts: [(a.clone(), inside)].into() };
        let run = RunProgram { code: Some(code.to_owned()), ..RunProgram::default() };
        let mut checkup = Checkup::for_launch(1, [a.clone()], &[]).looking_into(Some(inside));
        checkup = checkup.running([(a.clone(), run)].into());
        checkup.is_up(&a, info("10.0.0.1"));
        let asked = checkup.questions().remove(0).ask.look_into.unwrap();
        let told = serde_json::to_string(&asked).unwrap();
        assert!(!told.contains("KEY"), "{told}");
        asked.starts.unwrap().imports.join(" ")
    };
    assert_eq!(of(None, "import torch\nkey = 'KEY'\n"), "torch");
    assert_eq!(of(None, "import torch\nos.environ['X'] = 'KEY'\n"), "", "it may lead elsewhere");
    assert_eq!(of(None, ""), "");
    assert_eq!(of(Some("train.py"), ""), "torch horovod.torch", "it is read in the container");
}

#[test]
fn nothing_is_waited_for_for_ever() {
    let (a, b) = (HostId::from("a"), HostId::from("b"));
    let mut checkup = Checkup::new(1, [a.clone(), b.clone()], &["shm".to_owned()]);
    checkup.is_up(&a, info("10.0.0.1"));
    checkup.questions();
    checkup.told(&a, Checked { ask: 9, check: "shm".to_owned(), found: None, why: None });
    checkup.told(&b, Checked { ask: 1, check: "shm".to_owned(), found: None, why: None });
    assert!(!checkup.is_over(), "answers to other questions are none");
    checkup.give_up("no answer in 8 s");
    assert!(checkup.is_over());
    assert_eq!(checkup.matrix().rows[1].verdicts[&a].evidence, "no answer in 8 s");
}

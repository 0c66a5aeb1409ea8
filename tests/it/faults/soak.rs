//! Random faults for as long as is asked: 4 hosts, 8 ranks each, run after run, and after each run L, X and P.

use std::time::{Duration, Instant};

use super::dice::Dice;
use super::invariants::{Ends, exits_agree, no_byte_lost, nothing_left};
use super::rig::{Job, Rig, lasts};

/// A fault that heals: what it is called, how it begins, how it ends.
struct Fault {
    name: &'static str,
    begin: fn(&Rig, &str),
    /// Whether it lasts a while before all is made well again.
    lasts: bool,
}

const FAULTS: &[Fault] = &[
    Fault { name: "stall", begin: |rig, host| rig.relay(host).stall(), lasts: true },
    Fault { name: "reset", begin: |rig, host| rig.relay(host).reset(), lasts: false },
    Fault { name: "half-close", begin: |rig, host| rig.relay(host).half_close(), lasts: false },
    Fault { name: "corrupt", begin: |rig, host| rig.relay(host).corrupt(), lasts: false },
    Fault {
        name: "far",
        begin: |rig, host| rig.relay(host).set(|w| w.delay = Duration::from_millis(80)),
        lasts: true,
    },
    Fault { name: "slow", begin: |rig, host| rig.relay(host).set(|w| w.rate = 100_000), lasts: true },
    Fault {
        name: "flap",
        begin: |rig, host| {
            for _ in 0..3 {
                rig.relay(host).set(|weather| weather.refuse = true);
                rig.relay(host).reset();
                lasts(Duration::from_millis(700));
                rig.relay(host).clear();
                lasts(Duration::from_millis(700));
            }
        },
        lasts: false,
    },
    Fault { name: "drop in", begin: |rig, host| rig.change("drop", &format!("{host} in")), lasts: true },
    Fault { name: "drop out", begin: |rig, host| rig.change("drop", &format!("{host} out")), lasts: true },
    Fault { name: "loss", begin: |rig, host| rig.change("loss", &format!("{host} 15")), lasts: true },
    Fault { name: "refuse", begin: |rig, host| rig.change("refuse", host), lasts: true },
    Fault { name: "cut", begin: |rig, host| rig.change("cut", host), lasts: true },
    Fault { name: "blackhole", begin: |rig, host| rig.change("blackhole", host), lasts: true },
    Fault { name: "sever", begin: |rig, host| rig.change("sever", host), lasts: false },
    Fault {
        name: "sshd stopped and started",
        begin: |rig, host| {
            rig.change("stop", host);
            lasts(Duration::from_secs(2));
            rig.change("start", host);
        },
        lasts: false,
    },
    Fault { name: "agent killed", begin: |rig, host| rig.kill_agents(host), lasts: false },
    Fault {
        name: "frozen",
        begin: |rig, host| {
            rig.change("freeze", host);
            lasts(Duration::from_secs(3));
            rig.change("thaw", host);
        },
        lasts: false,
    },
];

/// How a run of the soak is to end.
struct Plan {
    trainer: Vec<String>,
    code: i32,
    ends: Vec<Ends>,
}

fn plan(dice: &mut Dice, ranks: usize) -> Plan {
    let rank = dice.below(ranks as u64) as usize;
    let (what, code, end) = *dice.pick(&[
        ("", 0, Ends::Exit(0)),
        ("exit7", 7, Ends::Exit(7)),
        ("kill11", 139, Ends::Signal(11)),
        ("kill9", 137, Ends::Signal(9)),
    ]);
    let lines = 100 + dice.below(300);
    let mut trainer: Vec<String> = ["--every", "0.1", "--pad"].map(str::to_owned).into();
    trainer.push((dice.below(4) * 200).to_string());
    let mut ends = vec![if what.is_empty() { Ends::Exit(0) } else { Ends::Stopped }; ranks];
    if what.is_empty() {
        trainer.extend(["--lines".to_owned(), lines.to_string()]);
    } else {
        trainer.extend([
            "--lines".to_owned(),
            "1000000".to_owned(),
            "--at".to_owned(),
            format!("{rank}:{lines}:{what}"),
        ]);
        ends[rank] = end;
    }
    Plan { trainer, code, ends }
}

fn disturb(rig: &Rig, job: &mut Job<'_>, dice: &mut Dice, log: &mut Vec<String>) {
    let hosts = rig.hosts();
    while job.runs() {
        let (fault, host) = (dice.pick(FAULTS), dice.pick(&hosts));
        let time = if fault.lasts { Duration::from_millis(500 + dice.below(11_000)) } else { Duration::ZERO };
        log.push(format!("{} on {host} for {:.1} s", fault.name, time.as_secs_f64()));
        (fault.begin)(rig, host);
        lasts(time);
        rig.relay(host).clear();
        rig.change("heal", host);
        lasts(Duration::from_millis(dice.below(4000)));
    }
}

#[test]
#[ignore = "long: tests/faults/run --soak"]
fn soak() {
    let Some(minutes) = std::env::var("HVTUI_FAULTS_SOAK").ok().and_then(|text| text.parse::<f64>().ok())
    else {
        return eprintln!("HVTUI_FAULTS_SOAK tells the minutes: tests/faults/run --soak");
    };
    let seed = super::seed();
    let mut dice = Dice::new(seed);
    let Some(rig) = Rig::up_with(4, &[], seed) else { return };
    let began = Instant::now();
    let (mut runs, mut faults, mut bytes) = (0, 0, 0);
    while began.elapsed().as_secs_f64() < minutes * 60.0 {
        let person = rig.person();
        person.write("hosts.toml", &rig.cluster.hosts_toml(8));
        let plan = plan(&mut dice, 32);
        let trainer: Vec<&str> = plan.trainer.iter().map(String::as_str).collect();
        let mut job = rig.start(&person, 8, &trainer);
        job.hear(3);
        let mut log = Vec::new();
        disturb(&rig, &mut job, &mut dice, &mut log);
        let code = job.wait();
        runs += 1;
        faults += log.len();
        eprintln!("run {runs}: {trainer:?} ends with {code} after {log:?}");
        exits_agree(&job, code, plan.code, &plan.ends);
        bytes += no_byte_lost(&job);
        nothing_left(&rig, &job.run());
    }
    eprintln!(
        "soak: {runs} runs of 32 ranks, {faults} faults, {bytes} bytes compared, seed {seed}: L, X and P hold"
    );
}

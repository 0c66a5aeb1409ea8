//! Row 40: a host is lost at any moment of a start, and either all ranks go on, each started once, or none.

use hvtui::clock::now;

use super::invariants::nothing_left;
use super::matrix::Notes;
use super::rig::{Rig, until};

/// How often the start is cut, each time a little later.
const CUTS: u64 = 12;

pub(crate) fn host_lost_while_starting(notes: &mut Notes) -> Option<()> {
    let rig = Rig::up(4)?;
    let warm = rig.person();
    let places = "n1:1,n2:1,n3:1,n4:1";
    let line = "echo started >>~/starts-$HVTUI_RUN; exec sleep 0.5";
    assert_eq!(warm.run(&["run", "-H", places, "--", "true"]).code, 0);
    let before = rig.relay("n4").bytes_up();
    assert_eq!(warm.run(&["run", "-H", places, "--", "sh", "-c", line]).code, 0);
    let whole = rig.relay("n4").bytes_up() - before;
    let (mut none, mut all) = (0, 0);
    for cut in 1..=CUTS {
        let person = rig.person();
        rig.relay("n4").set(|weather| weather.cut_up_after = whole * cut / CUTS);
        let mut job = rig.launch(&person, &["run", "--verbose", "-H", places, "--", "sh", "-c", line]);
        until("the cut, or the end", || rig.relay("n4").cuts() > 0 || !job.runs());
        rig.relay("n4").clear();
        let code = job.wait();
        let Some(run) = job.newest() else {
            none += 1;
            assert_ne!(code, 0, "{}", job.last_words());
            continue;
        };
        let since = now();
        for host in rig.hosts() {
            rig.cluster.until_free(&host, &run);
        }
        if code != 0 {
            notes.took(&format!("cut {cut}: all given up"), now().micros_since(since) as f64 / 1e6, 5.0);
        }
        let starts: Vec<String> = rig
            .hosts()
            .iter()
            .map(|host| {
                rig.cluster.on(host, &format!("cat ~/starts-{run} 2>/dev/null | wc -l")).trim().to_owned()
            })
            .collect();
        if code == 0 {
            assert_eq!(starts, ["1"; 4], "cut {cut}: {}", job.said());
            all += 1;
        } else {
            // the order to start is sent to all at once: where one is lost, the others are ended at once
            let once = starts.iter().all(|count| count == "0" || count == "1");
            assert!(once, "cut {cut}: {starts:?}: {}", job.said());
            none += 1;
        }
        nothing_left(&rig, &run);
    }
    notes.say(&format!("{CUTS} cuts: {all} times all ranks started once, {none} times none goes on"));
    Some(())
}

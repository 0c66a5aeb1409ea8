use super::*;

fn ping(t0: i64, host: u64, took: u64) -> ClockSample {
    ClockSample::from_ping(Stamp(t0), HostTime(host), HostTime(host), Duration::from_micros(took)).unwrap()
}

/// A clock that drifts by 20 millionths, 200 µs each ten seconds; every seventh ping is held up on its way back.
fn drifting(seconds: u64) -> impl Iterator<Item = ClockSample> {
    (0..seconds).map(|second| ClockSample {
        host_time: HostTime(second * 1_000_000),
        offset_us: 1_000_000_000 + second as i64 * 20 + if second % 7 == 3 { 2_400 } else { 0 },
        rtt_us: if second % 7 == 3 { 5_000 } else { 100 },
    })
}

#[test]
fn the_least_delayed_ping_decides() {
    let mut fit = ClockFit::default();
    assert_eq!(fit.stamp(HostTime(5)), None);
    // true offset 1_000_000; the first ping is held up by 4 ms on its way back
    let us = Duration::from_micros;
    fit.add(ClockSample::from_ping(Stamp(1_000_100), HostTime(150), HostTime(160), us(4_110)).unwrap());
    fit.add(
        ClockSample::from_ping(Stamp(2_000_100), HostTime(1_000_150), HostTime(1_000_160), us(110)).unwrap(),
    );
    assert_eq!(fit.uncertainty_us(), Some(50));
    assert_eq!(fit.stamp(HostTime(7)), Some(Stamp(1_000_007)));
    assert_eq!(fit.host_time(Stamp(1_000_007)), Some(HostTime(7)));
}

#[test]
fn a_ping_that_came_back_before_it_was_answered_says_nothing() {
    // the client slept for a second, which its monotonic clock did not count
    let slept = |took| {
        ClockSample::from_ping(Stamp(0), HostTime(10), HostTime(1_000_010), Duration::from_micros(took))
    };
    assert_eq!(slept(500), None);
    assert_eq!(slept(1_000_120).map(|sample| sample.rtt_us), Some(120));
}

#[test]
fn a_clock_that_is_set_is_followed_at_once() {
    let mut fit = ClockFit::default();
    fit.add(ping(10_000_000, 1_000, 100));
    // held up for two seconds: that alone is no step
    fit.add(ping(11_000_000, 2_900_000, 2_000_000));
    assert_eq!(fit.stamp(HostTime(1_000)), Some(Stamp(10_000_050)));
    // set back by an hour
    fit.add(ping(13_000_000 - 3_600_000_000, 3_001_000, 300));
    assert_eq!(fit.stamp(HostTime(3_001_000)), Some(Stamp(13_000_150 - 3_600_000_000)));
    // and by 20 ms, which no drift does within a second
    fit.add(ping(14_000_000 - 3_600_020_000, 4_001_000, 300));
    assert_eq!(fit.stamp(HostTime(4_001_000)), Some(Stamp(14_000_150 - 3_600_020_000)));
}

#[test]
fn a_clock_that_drifts_is_placed_between_its_pings_and_after_them() {
    let mut fit = ClockFit::default();
    for sample in drifting(2_000) {
        fit.add(sample);
        let true_us = sample.host_time.0 as i64 + 1_000_000_000 + sample.host_time.0 as i64 / 50_000;
        let placed = fit.stamp(sample.host_time).unwrap().0;
        let uncertainty = i64::from(fit.uncertainty_us().unwrap());
        assert!((placed - true_us).abs() <= uncertainty + 1, "{placed} for {true_us} ±{uncertainty}");
    }
    assert_eq!(fit.uncertainty_us(), Some(50));
    assert_eq!(fit.pings.best.len(), BUCKETS);
    let line = fit.line.unwrap();
    assert!((line.drift - 20e-6).abs() < 1e-9, "{line:?}");
    let later = HostTime(2_005_000_000);
    assert_eq!(fit.stamp(later), Some(Stamp(2_005_000_000 + 1_000_000_000 + 40_100)));
    assert_eq!(fit.host_time(Stamp(2_005_000_000 + 1_000_000_000 + 40_100)), Some(later));
}

#[test]
fn one_ping_is_less_sure_the_older_it_is() {
    let mut fit = ClockFit::default();
    fit.add(ping(0, 0, 100));
    let mut told = Vec::new();
    for second in 1..=9 {
        // far worse ones since
        fit.add(ping(second * 1_000_000, second as u64 * 1_000_000, 40_000));
        told.push(fit.uncertainty_us().unwrap());
    }
    assert_eq!(told, [100, 150, 200, 250, 300, 350, 400, 450, 500]);
}

#[test]
fn a_recording_has_a_line_for_each_time_between_which_a_clock_was_set() {
    let mut track = ClockTrack::default();
    drifting(600).for_each(|sample| track.add(sample));
    // the client's clock is set back by a second
    drifting(1_200).skip(600).for_each(|sample| {
        track.add(ClockSample { offset_us: sample.offset_us - 1_000_000, ..sample });
    });
    let lines = track.fit().unwrap();
    let placed = |second: u64| lines.at(HostTime(second * 1_000_000)).offset_ns(HostTime(second * 1_000_000));
    for (second, offset_us) in
        [(305, 1_000_006_100), (599, 1_000_011_980), (601, 999_012_020), (1_000, 999_020_000)]
    {
        assert!((placed(second) - offset_us * 1_000).abs() < 1_000, "{second}: {}", placed(second));
    }
    assert!((lines.newest().drift - 20e-6).abs() < 1e-9, "{lines:?}");
    assert_eq!(ClockTrack::default().fit(), None);
}

#[test]
fn a_moment_is_known_the_less_the_further_it_is_from_a_ping() {
    let sample =
        |seconds: u64, rtt_us| ClockSample { host_time: HostTime(seconds * 1_000_000), offset_us: 5, rtt_us };
    let mut fit = ClockFit::default();
    assert_eq!(fit.unsure_us(HostTime(0)), None);
    fit.add(sample(100, 60));
    let at = |fit: &ClockFit, seconds: u64| fit.unsure_us(HostTime(seconds * 1_000_000));
    assert_eq!((at(&fit, 100), at(&fit, 120), at(&fit, 80)), (Some(30), Some(1_030), Some(1_030)));
    assert_eq!((at(&fit, 161), at(&fit, 39)), (None, None), "no ping is near");
    // a ping hours later says nothing of what was between
    fit.add(sample(9_000, 60));
    assert_eq!(at(&fit, 5_000), None);
    assert!(at(&fit, 101).is_some_and(|unsure| unsure > 100_000), "by the line of the newest ping");
}

#[test]
fn a_clock_is_known_the_less_the_longer_no_ping_came() {
    let mut fit = ClockFit::default();
    assert_eq!(fit.aged_us(HostTime(0)), None);
    for second in 91..=100 {
        let host_time = HostTime(second * 1_000_000);
        fit.add(ClockSample { host_time, offset_us: 5, rtt_us: 200 });
    }
    let at = |second: u64| fit.aged_us(HostTime(second * 1_000_000));
    assert_eq!((at(90), at(100), at(115)), (Some(100), Some(100), Some(100)), "the host is followed");
    assert_eq!((at(158), at(3_700)), (Some(3_000), Some(180_100)));
}

#[test]
fn a_jump_is_told_with_how_far_the_host_went_ahead() {
    let mut fit = ClockFit::default();
    assert_eq!(fit.add(ping(10_000_000, 1_000, 100)), None);
    assert_eq!(fit.add(ping(11_000_000, 1_001_000, 5_000)), None, "slow is no jump");
    // the host's clock was set an hour ahead
    let jump = fit.add(ping(12_000_000, 2_001_000 + 3_600_000_000, 100)).unwrap();
    assert!((jump - 3_600_000_000).abs() < 3_000, "{jump}");
    assert_eq!(fit.add(ping(13_000_000, 3_001_000 + 3_600_000_000, 100)), None);
    let back = fit.add(ping(14_000_000, 4_001_000, 100)).unwrap();
    assert!((back + 3_600_000_000).abs() < 3_000, "{back}");
}

//! A log that is held while its copy takes its place.

use crate::common::*;
use pyrklog_log::LogConfig;

/// Ten records in leader epoch 1, then ten in epoch 2, all written.
fn of_two_epochs() -> Rig {
    let mut rig = Rig::new(LogConfig::default());
    for epoch in [1, 2] {
        rig.epoch = epoch;
        for _ in 0..10 {
            rig.put(&["value"]);
        }
        rig.write();
    }
    rig.log.advance_high_watermark(20);
    rig
}

/// The last line of the file.
fn last_epoch_line(rig: &Rig) -> String {
    let text = String::from_utf8(rig.file("leader-epoch-checkpoint")).unwrap();
    text.lines().last().unwrap().to_owned()
}

/// DeleteRecords drops an epoch, whose file would be written.
#[test]
fn a_held_log_writes_nothing_when_its_log_start_moves() {
    let mut rig = of_two_epochs();
    rig.log.hold();
    assert_eq!(rig.log.advance_log_start(15).unwrap(), 15);
    assert!(rig.log.is_at_rest(), "{:?}", rig.log);
    assert!(rig.log.take_writes().is_none());
    assert!(rig.log.hold_on());
    assert_eq!(rig.log.advance_log_start(17).unwrap(), 17);
    assert!(rig.log.take_writes().is_none());
    assert_eq!(last_epoch_line(&rig), "2 10");
    rig.log.release();
    rig.put(&["value"]);
    rig.write();
    assert_eq!(last_epoch_line(&rig), "2 17");
}

#[test]
fn a_log_with_unwritten_records_does_not_stand_still() {
    let mut rig = of_two_epochs();
    rig.append(&mut batch(0, &["value"])).unwrap();
    rig.log.hold();
    assert!(!rig.log.hold_on());
    rig.log.release_in_time();
    assert!(!rig.log.is_held());
    let job = rig.log.take_writes().unwrap();
    assert!(rig.log.is_written_by(&job));
    let other = of_two_epochs().log;
    assert!(!other.is_written_by(&job));
}

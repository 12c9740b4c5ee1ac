//! Independent tasks on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// The results of all tasks, in their order, from this many threads. `progress` is called with the
/// number of tasks that are done, and of all.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    tasks: &[T],
    threads: usize,
    run: impl Fn(&T) -> R + Sync,
    progress: &dyn Fn(usize, usize),
) -> Vec<R> {
    let (next, (sender, results)) = (AtomicUsize::new(0), mpsc::channel());
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, tasks.len().max(1)) {
            let (sender, next, run) = (sender.clone(), &next, &run);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(task) = tasks.get(index) else { return };
                    if sender.send((index, run(task))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        progress(0, tasks.len());
        let mut found = Vec::with_capacity(tasks.len());
        for result in results {
            found.push(result);
            progress(found.len(), tasks.len());
        }
        found.sort_unstable_by_key(|(index, _)| *index);
        found.into_iter().map(|(_, result)| result).collect()
    })
}

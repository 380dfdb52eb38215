;; A policy in WebAssembly: the fullest node by CPUs, and nodes with GPUs only for work that wants GPUs.
;; Named in the mesh's settings by its path. docs/plugins.md tells what each number is.
(module
  (func (export "score")
    (param $cpu_free f64) (param $cpu_total f64)
    (param $gpu_free f64) (param $gpu_total f64)
    (param $memory_free f64) (param $memory_total f64)
    (param $cpu_wanted f64) (param $gpu_wanted f64) (param $memory_wanted f64)
    (param $busy f64) (param $of_job f64) (param $local_bytes f64)
    (result f64)
    (local $score f64)
    ;; 1 - cpu_free / cpu_total: how full the node is. A node without CPUs counts as empty.
    (if (f64.gt (local.get $cpu_total) (f64.const 0))
      (then
        (local.set $score
          (f64.sub (f64.const 1) (f64.div (local.get $cpu_free) (local.get $cpu_total))))))
    ;; Ten less where the node has GPUs and the work wants none.
    (if (i32.and
          (f64.gt (local.get $gpu_total) (f64.const 0))
          (f64.eq (local.get $gpu_wanted) (f64.const 0)))
      (then (local.set $score (f64.sub (local.get $score) (f64.const 10)))))
    (local.get $score))

  ;; Short work first: a point more for what will end within a minute. -1 is work of unknown length.
  (func (export "priority")
    (param $priority f64) (param $cpu f64) (param $gpu f64) (param $memory f64) (param $estimated_s f64)
    (result f64)
    (if (result f64)
      (i32.and
        (f64.ge (local.get $estimated_s) (f64.const 0))
        (f64.le (local.get $estimated_s) (f64.const 60)))
      (then (f64.add (local.get $priority) (f64.const 1)))
      (else (local.get $priority))))

  ;; GPU work is left alone (NaN); of the rest, who loses least.
  (func (export "preemption_policy")
    (param $priority_delta f64) (param $ran_s f64) (param $lost_s f64) (param $remaining_s f64)
    (param $cpu f64) (param $gpu f64) (param $memory f64)
    (result f64)
    (if (result f64) (f64.gt (local.get $gpu) (f64.const 0))
      (then (f64.const nan))
      (else
        (f64.sub
          (local.get $priority_delta)
          (f64.div (local.get $lost_s) (f64.const 60)))))))

# What follows is the same for every sweep.
set -u
export SLURM_EXPORT_ENV=ALL # steps see the variables below, after --export=NONE too
say() { echo "job $SLURM_JOB_ID, $(date '+%F %T'): $*" >&2; }

# The job ends at the time that Slurm says; the sweep is stopped $margin seconds earlier.
said=$(SLURM_TIME_FORMAT=standard squeue --noheader --jobs "$SLURM_JOB_ID" --format %e 2>&1)
end=${SLURM_JOB_END_TIME:-$(date +%s -d "$said" 2>/dev/null)}
now=$(date +%s)
stop=$((${end:-0} - margin))
if ((stop <= now)); then
  say "nothing is run: less than $margin s are left (squeue: $said): --time with more, or less --margin"
  exit 2
fi

# Ports, a token and temporary folders of this job's own, so that jobs can share a node.
free_port() { # the first one of this node, from $1 on
  "$python" -c '
import socket, sys
for port in range(int(sys.argv[1]), 65536):
    with socket.socket() as probe:
        try: probe.bind(("", port))
        except OSError: continue
        sys.exit(print(port))' "$1"
}
export python gpus
export port=$(free_port $((20000 + SLURM_JOB_ID % 1200 * 10)))
export cores=$SLURM_CPUS_PER_TASK
export host=$("$python" -c 'import ray; print(ray.util.get_node_ip_address())')
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN=$(od -An -tx1 -N32 /dev/urandom | tr -d ' \n')

node() { # Ray on one node, until srun is ended
  local folder=/tmp/tread-lab-$SLURM_JOB_ID-$SLURM_NODEID # short, because sockets are in it
  local ray=("$python" -m ray.scripts.scripts start --block --temp-dir="$folder"
    --num-cpus="$cores" --num-gpus="$gpus" --object-store-memory=268435456
    --min-worker-port=0 --max-worker-port=0 # any free ones
    --dashboard-agent-listen-port="$(free_port $((port + 2 + SLURM_NODEID % 8)))"
    --disable-usage-stats)
  if [ "$SLURM_NODEID" = 0 ]; then
    ray+=(--head --node-ip-address="$host" --port="$port" --include-dashboard=false)
    # ray[client] listens, too, where it is installed
    "$python" -c 'import grpc' 2>/dev/null && ray+=(--ray-client-server-port="$(free_port $((port + 1)))")
  else
    until (: <"/dev/tcp/$host/$port") 2>/dev/null; do sleep 1; done
    ray+=(--address="$host:$port")
  fi
  # Ray gives up a start after 30 s, too few for a disk that was not read from before.
  local code tries=9 # while the driver waits for all nodes
  while "${ray[@]}" >/dev/null; code=$?; ((code && --tries && SECONDS < 600)); do
    echo "Ray ended with code $code on node $SLURM_NODEID; it starts once more" >&2
  done
  return $((SLURM_NODEID == 0 ? code : 0)) # without its head the cluster is lost
}
unset RAY_ADDRESS
each=(srun --quiet --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --cpus-per-task="$cores")
"${each[@]}" --kill-on-bad-exit=1 bash -c "$(declare -f free_port node); node" &
cluster=$!
export RAY_ADDRESS=$host:$port
say "$SLURM_JOB_NUM_NODES nodes, Ray at $RAY_ADDRESS, runs until $(date '+%F %T' -d "@$stop")"

# What this job leaves for the next one is newer than this file.
begun=$lab/slurm-$SLURM_JOB_ID.begun
mkdir -p "$lab"
touch "$begun"
progress() {
  find "$lab" -newer "$begun" -type f \( -path '*/checkpoints/*' -o -path '*/evaluations/*' \
    -o -path '*/cache/*' -o -name result.json \) -print -quit 2>/dev/null
}

code=3
lives() { kill -0 "$cluster" 2>/dev/null; } # a head that ends, ends srun
joined() { # all nodes have joined the cluster; a head whose start is repeated counts as none
  "$python" -c 'import sys, ray
ray.init(log_to_driver=False, logging_level="ERROR")
sys.exit(sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[1]))' "$SLURM_JOB_NUM_NODES" 2>/dev/null
}
while lives && ((SECONDS < 600)) && ! joined; do sleep 1; done
if lives; then
  left=$((stop - $(date +%s)))
  # SIGTERM by the clock: runs write checkpoints. What still runs near the end is killed.
  timeout --foreground --preserve-status --kill-after=$((margin * 2 / 3)) $((left > 0 ? left : 1)) \
    "$python" -m tread_lab "${sweep[@]}" &
  driver=$!
  trap 'kill -TERM "$driver"' TERM # scancel --batch --signal=TERM stops with checkpoints
  while wait "$driver"; code=$?; kill -0 "$driver" 2>/dev/null; do :; done
  trap - TERM
fi
kill "$cluster" 2>/dev/null
timeout 30 tail --pid="$cluster" -f /dev/null
timeout 30 "${each[@]}" bash -c 'rm -rf "/tmp/tread-lab-$SLURM_JOB_ID-$SLURM_NODEID"'

gained=$(progress)
rm -f "$begun"
# Stopped by the clock: with checkpoints, before the sweep had begun, or killed.
if [[ ! $code =~ ^(130|143|137)$ ]] || (($(date +%s) < stop)); then
  say "ended with exit code $code"
  exit "$code"
fi
if [ -z "$gained" ]; then
  say "the time was too short for a single step, so no job follows: --time with more, or less --margin"
  exit "$code"
fi
say "the time is nearly up; the sweep goes on from its checkpoints"
if [ "$resubmit" = no ] && scontrol requeue "$SLURM_JOB_ID"; then
  sleep 60 # Slurm ends this job meanwhile
  exit 0
fi
# $0 is Slurm's copy of this file; the line of sbatch is lost, but for its place.
if next=$(sbatch --parsable --dependency="afterany:$SLURM_JOB_ID" \
  ${SLURM_JOB_PARTITION:+--partition="$SLURM_JOB_PARTITION"} \
  ${SLURM_JOB_ACCOUNT:+--account="$SLURM_JOB_ACCOUNT"} ${SLURM_JOB_QOS:+--qos="$SLURM_JOB_QOS"} "$0"); then
  say "job $next goes on"
  exit 0
fi
say "the same file, given to sbatch again, goes on"
exit "$code"

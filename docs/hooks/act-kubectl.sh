#!/bin/sh
# A program for `act --script`: annotates the workload that serves a model, with kubectl. Nothing restarts.
set -eu
action=$1 model=$2 k=$3 namespace=$4 cluster=$5 method=${6:-} workload=

# serves MODEL NAMESPACE CLUSTER METHOD WORKLOAD: the labels of its alerts, empty where they have none. All must be
# equal: the limits of `act` are for each model and method, and alerts with other labels are of another one.
serves() {
  if [ "$model" = "$1" ] && [ "$namespace" = "$2" ] && [ "$cluster" = "$3" ] && [ "$method" = "$4" ]; then
    workload=$5
  fi
}

# One line for each model; where it has several methods, as in an A/B test, one for the workload of each method.
serves meta-llama/Llama-3.1-70B-Instruct prod '' '' '--namespace prod deployment/vllm-llama'

if [ -z "$workload" ]; then
  echo "no workload of model '$model' in namespace '$namespace' of cluster '$cluster' with method '$method'"
  exit 1
fi
case $k in
  '') recommended=vllm-specdec-exporter/recommended-num-speculative-tokens- ;; # removes that of an earlier alert
  *) recommended=vllm-specdec-exporter/recommended-num-speculative-tokens=$k ;;
esac
# shellcheck disable=SC2086 # the words of a line above
exec kubectl annotate --overwrite $workload "vllm-specdec-exporter/action=$action" "$recommended"

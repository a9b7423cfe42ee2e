#!/usr/bin/env bash
# Writes deploy/kubernetes/components/monitoring/prometheusrule.yaml: deploy/prometheus/rules.yaml, which is the one source, in
# the Prometheus operator's wrapping. tests/deploy/test_monitoring.py compares the two.
#
#   scripts/prometheus_rule.sh
set -euo pipefail
cd "$(dirname "$0")/../deploy"
{
  cat <<'YAML'
# Written by scripts/prometheus_rule.sh from deploy/prometheus/rules.yaml: change that one.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: gemmd
  labels:
    app.kubernetes.io/name: gemmd
spec:
YAML
  sed 's/^\(.\)/  \1/' prometheus/rules.yaml
} >kubernetes/components/monitoring/prometheusrule.yaml

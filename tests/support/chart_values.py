"""Values that use everything that the Helm chart has: for the watcher, and for the page of several clusters."""

from __future__ import annotations

from typing import Any

EVERYTHING: dict[str, Any] = {
    "image": {"digest": "sha256:" + 64 * "a"},
    "imagePullSecrets": [{"name": "pull"}],
    "settings": {
        "bootstrap_server": "a:9092,b:9092",
        "redis_url": "redis://redis:6379/0",
        "max_bytes_per_second": 268435456,
        "long_running_fraction": 0.5,
        "auto_abort": "dry-run",
        "abort_transactional_id_prefixes": ["orders-", "payments-"],
    },
    "secret": {
        "existingSecret": "kafka-user",
        "clientProperties": "client.properties",
        "config": "txnwatch.toml",
        "eventsKey": "events.keys",
        "owners": "owners.toml",
        "pushFile": "push.toml",
        "webConfig": "web.yml",
    },
    "checkpoint": {
        "volume": {"storageClassName": "fast", "accessModes": ["ReadWriteOncePod"], "retainOnDelete": False}
    },
    "metrics": {
        "serviceMonitor": {
            "enabled": True,
            "labels": {"release": "prometheus"},
            "endpoint": {"scheme": "https", "tlsConfig": {"insecureSkipVerify": True}},
        },
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    },
    "networkPolicy": {
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "dnsTo": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}],
        "kafka": {"ports": [9092, 9093], "to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
        "redis": {"ports": []},
        "schemaRegistry": {"ports": [8081]},
        "push": {"ports": [443, 9093]},
        "extraIngress": [{"ports": [{"protocol": "TCP", "port": 7078}]}],
        "extraEgress": [{"ports": [{"protocol": "TCP", "port": 443}]}],
    },
    "podDisruptionBudget": {"maxUnavailable": 0},
    "serviceAccount": {"annotations": {"owner": "payments"}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"team": "payments"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
    "priorityClassName": "high",
    "extraEnv": [
        {"name": "AWS_REGION", "value": "eu-central-1"},
        {"name": "AWS_WEB_IDENTITY_TOKEN_FILE", "value": "/var/run/secrets/aws/token"},
        {"name": "HTTPS_PROXY", "value": "http://proxy:3128"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "REDIS_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "redis", "key": "password"}}},
    ],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/txnwatch/ca", "readOnly": True}],
}

PAGE: dict[str, Any] = {
    "settings": {"bootstrap_server": "a:9092"},
    "secret": {"existingSecret": "s", "owners": "owners.toml", "webConfig": "web.yml"},
    "page": {
        "enabled": True,
        "clusters": [{"name": "eu", "watchers": ["https://watch:9464/"], "bootstrap_server": "a:9092"}],
        "port": 8080,
        "replicas": 2,
        "httpNames": ["page.example"],
        "resources": {"requests": {"cpu": "200m"}},
        "networkPolicy": {
            "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}],
            "watchers": {"ports": [9465], "to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
        },
    },
}

#!/usr/bin/env bash
# The first argument is what Spark asks of a container on Kubernetes: `driver ARGUMENT…` or `executor`, which is told all
# it needs by variables. Anything else is a command.
set -euo pipefail

case "${1:-}" in
    driver)
        shift
        set -- "$SPARK_HOME/bin/spark-submit" --deploy-mode client \
            --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "$@"
        ;;
    executor)
        options=()
        for name in $(compgen -e SPARK_JAVA_OPT_ | sort --version-sort); do
            options+=("${!name}")
        done
        set -- java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
            -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$SPARK_HOME/jars/*" \
            org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
            --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
            --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
            --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
        ;;
esac
exec tini -s -- "$@"

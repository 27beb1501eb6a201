"""The keys that a task may have, as the parsers of SkyPilot 0.14.0 and dstack 0.22.5 list them.
`make tasks` compares."""

KEYS = {
    "skypilot": {
        "": """
            _metadata api_server_access config envs event_callback file_mounts
            file_mounts_mapping inputs managed_secrets name num_nodes outputs pool resources run
            secrets service setup volume_mounts volumes workdir
        """.split(),
        "resources": """
            _cluster_config_overrides _docker_login_config _is_image_managed
            _no_missing_accel_warnings _requires_fuse accelerator_args accelerators any_of
            autostop cloud cpus disk_size disk_tier ephemeral_storage image_id infra
            instance_type job_recovery labels local_disk max_hourly_cost memory network_tier
            ordered ports priority priority_class region use_spot volumes zone
        """.split(),
    },
    "dstack": {
        "": """
            availability_zones backend_options backends commands creation_policy docker dstack
            entrypoint env files fleets groups home_dir idle_duration image instance_types
            instances max_duration max_price name nodes nvcc ports priority privileged python
            regions registry_auth repos reservation resources retry schedule setup shell
            single_branch spot_policy startup_order stop_criteria stop_duration tags type user
            utilization_policy volumes working_dir
        """.split(),
        "resources": """
            cpu disk gpu memory shm_size
        """.split(),
        "resources.gpu": """
            compute_capability count memory name total_memory vendor
        """.split(),
    },
}

"""What holds for every test: no asyncio task outlives it, and chance is a seed."""


from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.controlplane.pytest_plugin"]

settings.register_profile("default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", settings.get_profile("default"), derandomize=False, max_examples=2_000)
settings.load_profile("default")

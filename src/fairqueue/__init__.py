"""Fair multi-tenant queues on Valkey and Redis whose tenants cannot be wedged."""

//! How many pods a service needs for how many nodes and cores. Pure.

use serde::Serialize;

/// How many pods for how many nodes and cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Linear {
    /// In thousandths.
    pub cores_per_replica: u64,
    /// In thousandths.
    pub nodes_per_replica: u64,
    /// At least so many.
    pub min: u32,
    /// At most so many; 0: any number.
    pub max: u32,
    /// Two as soon as there are two nodes.
    pub prevent_single_point_failure: bool,
}

impl Default for Linear {
    fn default() -> Self {
        Self {
            cores_per_replica: 128_000,
            nodes_per_replica: 4_000,
            min: 1,
            max: 0,
            prevent_single_point_failure: true,
        }
    }
}

impl Linear {
    /// How many pods, as the cluster-proportional-autoscaler counts.
    pub fn replicas(self, nodes: u32, cores: u32) -> u32 {
        let most = |replicas: u64| match self.max {
            0 => replicas,
            max => replicas.min(max.into()),
        };
        let for_each = |count: u32, per_replica: u64| {
            // Without a number it says nothing.
            if per_replica == 0 {
                return 1;
            }
            let needed = (u64::from(count) * 1000).div_ceil(per_replica);
            most(needed).max(self.min.into())
        };
        let replicas =
            for_each(nodes, self.nodes_per_replica).max(for_each(cores, self.cores_per_replica));
        let spare = self.prevent_single_point_failure && nodes > 1;
        let replicas = replicas.max(if spare { 2 } else { 1 });
        u32::try_from(replicas).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the cluster-proportional-autoscaler.
    #[test]
    fn replicas_grow_with_nodes_and_cores() {
        let linear = Linear::default();
        for (nodes, cores, replicas) in [
            (0, 0, 1),
            (1, 4, 1),
            (2, 8, 2),
            (8, 64, 2),
            (9, 72, 3),
            (40, 160, 10),
            (4, 512, 4),
            (1, 129, 2),
        ] {
            assert_eq!(linear.replicas(nodes, cores), replicas, "{nodes} {cores}");
        }
        let few = Linear {
            min: 3,
            max: 5,
            prevent_single_point_failure: false,
            ..linear
        };
        assert_eq!(few.replicas(1, 1), 3);
        assert_eq!(few.replicas(100, 1), 5);
        let alone = Linear {
            prevent_single_point_failure: false,
            ..linear
        };
        assert_eq!(alone.replicas(4, 16), 1);
        let halves = Linear {
            nodes_per_replica: 500,
            ..linear
        };
        assert_eq!(halves.replicas(3, 1), 6);
    }
}

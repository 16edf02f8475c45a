"""Every formula on arrays, in one place, without torch: counts, sums, differences."""

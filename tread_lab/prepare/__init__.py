"""Makes the data sets that runs read: encode images, pack, verify, and measure what is stored."""
